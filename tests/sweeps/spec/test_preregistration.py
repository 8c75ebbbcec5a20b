"""A claim: how much, in which unit, which cells it compares, and its hash."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from polysweep.sweeps.spec.preregistration import Amount, Claim, Preregistration, read_amount, unit_problem

BETTER = {"better": {"scheduler": "polyak"}, "than": {"scheduler": "constant"}}


def claim(**changes: object) -> Claim:
    return Claim.model_validate({**BETTER, "metric": "test/top1", **changes})


@pytest.mark.parametrize(
    ("text", "amount", "words"),
    [("0.2 points", (0.002, True), "0.2 points"), ("20points", (0.2, True), "20 points"), (0, (0.0, False), "0"),
     (0.05, (0.05, False), "0.05"), ("1e-3", (0.001, False), "0.001")],
)  # fmt: skip
def test_an_amount_is_a_number_or_percentage_points(text: object, amount: tuple[float, bool], words: str) -> None:
    assert read_amount(text) == amount and str(Amount(*amount)) == words


@pytest.mark.parametrize("text", [-1, "-0.1 points", "many", "0.2 %", True, float("nan"), float("inf"), None, [1]])
def test_anything_else_is_none(text: object) -> None:
    with pytest.raises(ValidationError, match=r"a number >= 0, or such as '0\.2 points'"):
        claim(by=text)


def test_points_are_of_accuracies_and_accuracies_need_them() -> None:
    assert unit_problem(claim(by=0.2)) == (
        "0.2 of an accuracy needs a unit: '0.2 points' are percentage points, '20 points' the fraction 0.2"
    )
    assert "'0.1 points': test/loss is no accuracy" in unit_problem(claim(by="0.1 points", metric="test/loss"))
    for by, metric in ((0, "test/top1"), ("0.2 points", "val/top5"), (0.2, "test/loss")):
        assert unit_problem(claim(by=by, metric=metric)) == ""


def test_it_compares_the_cells_that_agree_in_all_that_both_have() -> None:
    cells = [
        {"rho": rho, "scheduler": scheduler, **({"gamma_b": gamma_b} if gamma_b else {})}
        for rho in (0.1, 0.4)
        for scheduler, gamma_b in (("constant", None), ("cosine", None), ("polyak", 0.5), ("polyak", 1.0))
    ]
    assert list(claim().pairs(cells)) == [(2, 0), (3, 0), (6, 4), (7, 4)]
    assert list(claim(over={"rho": [0.4], "gamma_b": [1]}).pairs(cells)) == [(7, 4)]
    assert list(claim(than={"scheduler": "sgd"}).pairs(cells)) == []


def test_in_words_and_its_hash_depend_on_what_it_says_alone() -> None:
    whole = claim(by="0.2 points", over={"rho": [0.1, 0.4]})
    assert str(whole) == (
        "scheduler=polyak beats scheduler=constant by at least 0.2 points on test/top1 (rho in 0.1, 0.4)"
    )
    assert str(claim()) == "scheduler=polyak beats scheduler=constant on test/top1"
    first = Preregistration((whole, claim()))
    assert first.hash == Preregistration((claim(over={"rho": [0.1, 0.4]}, by="0.20points"), claim()), "later", 3).hash
    assert len({one.hash for one in (first, Preregistration((whole,)), Preregistration((claim(), whole)))}) == 3
