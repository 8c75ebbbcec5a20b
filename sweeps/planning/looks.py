"""A look at two cells: which of them is better, whether they are equivalent, or that it is not decided yet. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from polysweep.sweeps.planning.sequential import interval
from polysweep.sweeps.planning.welch import Sample, has_spread, more_diverged
from polysweep.sweeps.spec.comparisons import Pair
from polysweep.sweeps.spec.decisions import BETTER, BOTH_DIVERGE, EQUIVALENT, OPEN, WORSE, Compared, Verdict

LEAST_SEEDS: Final = 2
"""One value has no spread."""


class CellResult(NamedTuple):
    """The seeds of a cell: the values of those that finished, larger is better, and how many diverged."""

    values: Sequence[float]
    diverged: int = 0


def compared(pair: Pair, one: CellResult, other: CellResult, bound: float, margin: float = 0.0) -> Compared:
    """The verdict on two cells at a look whose tests have the level `bound`.

    Better, or worse: 0 is outside of the interval of the difference. A cell of which more seeds have diverged is never
    the better one; if one has no finished seed, Fisher's exact test compares the counts. Equivalent: the interval is
    within `margin` on both sides, and as many seeds have diverged. Cells without any spread are not decided.
    """
    first, second = Sample.of(one.values), Sample.of(other.values)
    n = min(first.n, second.n)
    estimate = _finite(first.mean - second.mean) if n else None
    low, high = -math.inf, math.inf
    if not n:
        verdict = _of_counts(one, other, bound)
    elif n < LEAST_SEEDS or not has_spread([first], [second]):
        verdict = OPEN
    else:
        low, high = interval(first, second, bound)
        verdict = _of_interval(low, high, margin, one.diverged - other.diverged)
    better, than = map(str, pair.values)
    lost = (_lost(one), _lost(other))
    return Compared(pair[:2], better, than, pair.where, n, estimate, _finite(low), _finite(high), verdict, lost)


def _lost(cell: CellResult) -> str:
    """`2/5`: of all seeds those that diverged."""
    return f"{cell.diverged}/{len(cell.values) + cell.diverged}"


def _finite(end: float) -> float | None:
    """None for what no JSON file holds."""
    return end if math.isfinite(end) else None


def _of_interval(low: float, high: float, margin: float, more_lost: int) -> Verdict:
    """From the interval of a difference, and how many more seeds of the first cell have diverged."""
    if low > 0 and more_lost <= 0:
        return BETTER
    if high < 0 and more_lost >= 0:
        return WORSE
    return EQUIVALENT if -margin < low and high < margin and not more_lost else OPEN


def _of_counts(one: CellResult, other: CellResult, bound: float) -> Verdict:
    """If a cell has no finished seed, from how many have diverged."""
    if not one.values and not other.values:
        return BOTH_DIVERGE
    test = more_diverged((len(one.values), one.diverged), (len(other.values), other.diverged))
    if not test.p < bound:
        return OPEN
    return BETTER if test.is_above else WORSE
