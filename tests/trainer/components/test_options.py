"""The options of built-in components: their limits, and what is no number."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from polysweep.trainer.components.options import (
    LogisticOptions,
    MLPOptions,
    MomentOptions,
    Options,
    RidgeOptions,
    path_text,
)


@pytest.mark.parametrize(
    ("options", "values", "reason"),
    [
        (RidgeOptions, {"n": True}, "Input should be a number, not true or false"),
        (MomentOptions, {"beta1": False}, "Input should be a number, not true or false"),
        (RidgeOptions, {"consistent": 1}, "Input should be a valid boolean"),
        (RidgeOptions, {"lambda_r": float("inf")}, "Input should be a finite number"),
        (MLPOptions, {"hidden": 10**5 + 1}, "less than or equal to 100000"),
        (LogisticOptions, {"flipped": 0.5}, "less than 0.5"),
        (MLPOptions, {"width": 3}, "Extra inputs are not permitted"),
    ],
)
def test_a_value_out_of_range_or_of_another_type_is_refused(
    options: type[Options], values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason) as raised:
        options(**values)
    assert [error["loc"] for error in raised.value.errors()] == [tuple(values)]


@pytest.mark.parametrize(
    ("n", "d", "is_small_enough"),
    [(10**7, 1, True), (10**7 + 1, 1, False), (2000, 1000, True), (2001, 1000, False)],
)
def test_a_problem_may_have_as_many_entries_as_can_be_factored(n: int, d: int, is_small_enough: bool) -> None:
    """Ten million entries of A, and n d^2 of two thousand million."""
    if is_small_enough:
        assert RidgeOptions(n=n, d=d).n == n
        return
    with pytest.raises(ValidationError, match=rf"n = {n} with d = {d} is too large to be solved in closed form"):
        RidgeOptions(n=n, d=d)


def test_a_path_has_no_nul_character() -> None:
    assert path_text("data/ä b") == "data/ä b"
    with pytest.raises(ValueError, match="a path must not contain a NUL character"):
        path_text("data\0")
