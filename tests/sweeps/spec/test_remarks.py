"""What is read as W&B reads it, but was probably meant otherwise: one line each."""

from __future__ import annotations

import pytest

from polysweep.sweeps.spec.remarks import remarks_on_spec
from tests.support.replicated_worlds import FIELDS, PROTOCOL, world_spec
from tests.support.specs import GOOD, parse


def remarks(entry: str, method: str = "random", more: str = "") -> list[str]:
    text = GOOD.replace("method: grid", f"method: {method}").replace("{values: [0.1, 0.2]}", entry)
    return remarks_on_spec(parse(text + ("" if method == "grid" else "run_cap: 3\n") + more))


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            "{distribution: log_uniform, min: 1.0e-5, max: 0.1}",
            "'rho': log_uniform reads min and max as natural logarithms, as W&B does: values from 1.00001 to 1.10517; "
            "for values from 1e-05 to 0.1 use log_uniform_values",
        ),
        (
            "{distribution: inv_log_uniform, min: 0.001, max: 5}",
            "'rho': inv_log_uniform reads min and max as natural logarithms, as W&B does: values from 0.00673795 to "
            "0.999; for values from 0.001 to 5 use inv_log_uniform_values",
        ),
        (
            "{distribution: q_log_uniform, min: 0, max: 0.7, q: 0.5}",
            "'rho': q_log_uniform reads min and max as natural logarithms, as W&B does: values from 1 to 2; "
            "for values from 0 to 0.7 use q_uniform",
        ),
        (
            "{distribution: q_uniform, min: 0.1, max: 0.9, q: 0.25}",
            "'rho': q_uniform rounds to multiples of 0.25, as W&B does: values from 0 to 1",
        ),
        ("{values: [0.1, 0.2, 0.10]}", "'rho': 0.1 is listed 2 times: it is drawn that much more often"),
    ],
)
def test_what_is_probably_meant_otherwise_is_one_line(entry: str, text: str) -> None:
    assert remarks(entry) == [text]


def test_a_grid_tells_where_it_ends_and_what_is_there_once() -> None:
    assert remarks("{distribution: q_uniform, min: 0, max: 0.5, q: 0.25}", "grid") == [
        "'rho': a grid of q_uniform ends below max, as in W&B: its last value is 0.25, not 0.5"
    ]
    assert remarks("{values: [0.1, 0.1, 0.1]}", "grid") == ["'rho': 0.1 is listed 3 times: in a grid it is there once"]


def test_keys_that_hyperband_does_not_use_are_named() -> None:
    entry = "{value: 0.1}"
    for early, text in (
        ("min_iter: 1, s: 2", "early_terminate: ignored: s, because 'min_iter' counts, as in W&B"),
        ("min_iter: 1, max_iter: 9", "early_terminate: ignored: max_iter, because 'min_iter' counts, as in W&B"),
        (
            "min_iter: 1, max_iter: 9, s: 2",
            "early_terminate: ignored: min_iter, because 'max_iter' and 's' count, as in W&B",
        ),
    ):
        assert remarks(entry, more=f"early_terminate: {{type: hyperband, {early}}}\n") == [text]


@pytest.mark.parametrize(
    "entry",
    [
        "{distribution: log_uniform, min: -9, max: -2}",
        "{distribution: q_log_uniform, min: 1, max: 4}",
        "{distribution: log_uniform_values, min: 1.0e-5, max: 0.1}",
        "{distribution: q_uniform, min: 0, max: 1, q: 0.25}",
        "{distribution: q_beta, q: 0.5}",
        "{values: [1, 2]}",
    ],
)
def test_what_is_plain_is_not_remarked_on(entry: str) -> None:
    assert remarks(entry) == []


def test_many_values_are_compared_in_no_time() -> None:
    assert len(remarks(f"{{values: {[0.5, *range(1, 20_000), 0.5]}}}")) == 1


@pytest.mark.parametrize(("gpus", "count"), [("2", 1), ("1", 0), ("0.5", 0), ("auto", 0)])
def test_more_gpus_than_a_stack_uses_get_a_line(gpus: str, count: int) -> None:
    texts = [text for text in remarks_on_spec(parse(GOOD + f"launch: {{gpus: {gpus}}}\n")) if "launch.gpus" in text]
    assert texts == ["launch.gpus: 2: a stack is trained on one GPU, the others of its stack idle"] * count


def test_a_budget_that_a_space_does_not_have_is_said() -> None:
    drawn = {"scheduler": {"value": "polyak"}, "gamma_b": {"min": 0.5, "max": 2.0}}
    spec = world_spec(
        method="random", replicate=None, protocol={**PROTOCOL, "budget": 9}, tuned=["lr", "gamma_b"],
        variants=[FIELDS["variants"][0], drawn],
    )  # fmt: skip
    assert remarks_on_spec(spec) == ["protocol.budget: 9, but variant 1 has only 3 different candidates"]
