"""One look at two cells: verdicts from intervals, from diverged seeds, and when there is none."""

from __future__ import annotations

import pytest

from polysweep.sweeps.planning.looks import CellResult, compared
from polysweep.sweeps.spec.comparisons import Pair
from polysweep.sweeps.spec.decisions import BETTER, BOTH_DIVERGE, EQUIVALENT, OPEN, WORSE

PAIR = Pair("a", "b", ("polyak", "constant"), "rho=0.1")
HIGH, LOW = [0.91, 0.92, 0.93, 0.92], [0.81, 0.82, 0.83, 0.82]


@pytest.mark.parametrize(
    ("one", "other", "margin", "verdict"),
    [
        (CellResult(HIGH), CellResult(LOW), 0.0, BETTER),
        (CellResult(LOW), CellResult(HIGH), 0.0, WORSE),
        (CellResult(HIGH), CellResult([value + 0.001 for value in HIGH]), 0.0, OPEN),
        (CellResult(HIGH), CellResult([value + 0.001 for value in HIGH]), 0.2, EQUIVALENT),
        (CellResult(HIGH, 1), CellResult(HIGH, 0), 0.2, OPEN),  # one loses a seed: neither equivalent
        (CellResult(HIGH, 1), CellResult(LOW, 0), 0.0, OPEN),  # nor better
        (CellResult(HIGH, 1), CellResult(LOW, 1), 0.0, BETTER),
        (CellResult(HIGH, 0), CellResult(LOW, 3), 0.0, BETTER),
        (CellResult([0.9] * 4), CellResult([0.8] * 4), 0.0, OPEN),  # rounded values without any spread
        (CellResult([340 / 360] * 3), CellResult([341 / 360] * 3), 0.0, OPEN),  # their std is 1e-16
        (CellResult([0.9], 3), CellResult(LOW), 0.0, OPEN),  # one value has no spread either
        (CellResult([], 4), CellResult([], 4), 0.0, BOTH_DIVERGE),
        (CellResult([], 3), CellResult(HIGH[:3]), 0.0, OPEN),  # p = 0.1
        (CellResult([], 10), CellResult([0.9] * 10), 0.0, WORSE),  # p = 1e-5
        (CellResult([0.9] * 10), CellResult([], 10), 0.0, BETTER),
    ],
)
def test_the_verdict(one: CellResult, other: CellResult, margin: float, verdict: str) -> None:
    result = compared(PAIR, one, other, 0.01, margin)
    assert result.verdict == verdict
    assert (result.better, result.than, result.where, result.cells) == ("polyak", "constant", "rho=0.1", ("a", "b"))


def test_values_that_are_not_finite_decide_nothing() -> None:
    result = compared(PAIR, CellResult([float("inf"), 0.9, 0.8]), CellResult(LOW), 0.01, 0.2)
    assert (result.verdict, result.estimate, result.low, result.high) == (OPEN, None, None, None)


def test_what_is_kept_of_it() -> None:
    result = compared(PAIR, CellResult(HIGH), CellResult(LOW), 0.01)
    assert result.n == 4 and result.estimate == pytest.approx(0.1)
    assert result.low is not None and result.high is not None and 0 < result.low < 0.1 < result.high
    without = compared(PAIR, CellResult([], 4), CellResult(LOW), 0.01)
    assert (without.n, without.estimate, without.low, without.high) == (0, None, None, None)
