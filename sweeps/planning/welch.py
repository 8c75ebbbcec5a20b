"""Whether a difference of means is more than chance: Welch's test, for the best of several candidates. Pure.

docs/analysis.md has the rule in formulas. Student's t with Welch's variance was chosen by simulation in worlds of known
truth (`tests/system/test_worlds.py`): a variance pooled over cells shows more at n = 3, and claims differences that are
not there where cells differ in spread.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy import special

LEVEL: Final = 0.05
SMALLEST: Final = 1e-4


class Sample(NamedTuple):
    """The values of one candidate, as much as a test needs: mean, sample std (ddof = 1) and how many."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Collection[float]) -> Sample:
        """Of values in any order; std is NaN for n = 1 and for infinite values, and both are for n = 0."""
        n = len(values)
        array = np.array(sorted(values), dtype=float)
        std = float(array.std(ddof=1)) if n > 1 and np.isfinite(array).all() else math.nan
        return cls(float(array.mean()) if n else math.nan, std, n)


Candidates = Sequence[Sample]
"""The candidates of one cell; the first is the chosen one."""


class Difference(NamedTuple):
    """An estimated difference of means, its 95 % interval, and p values of the hypotheses that it is none."""

    estimate: float
    low: float
    high: float
    p_above: float  # of its being above 0; NaN if nothing can be tested
    p_below: float  # of its being below 0
    n: int  # the smallest number of values behind one of its means
    reason: str = ""  # why nothing can be tested

    @property
    def p(self) -> float:
        """Two-sided: the chance of either statement, while neither is true, is at most the level."""
        return self.p_above if math.isnan(self.p_above) else min(1.0, self.p_above, self.p_below)

    @property
    def is_above(self) -> bool:
        """Which of the two statements would be made."""
        return self.p_above < self.p_below


def fewer_is_better(samples: Candidates) -> Candidates:
    """The samples of a quantity of which less is better, so that `difference` takes more for better."""
    return [sample._replace(mean=-sample.mean) for sample in samples]


def untested(reason: str, estimate: float = math.nan, n: int = 0) -> Difference:
    """A difference of which nothing can be said, and why."""
    return Difference(estimate, math.nan, math.nan, math.nan, math.nan, n, reason)


def p_text(p: float) -> str:
    """`p = 0.21`, or `p < 0.0001`; empty if nothing could be tested."""
    if math.isnan(p):
        return ""
    return f"p = {p:.2g}" if p >= SMALLEST else f"p < {SMALLEST:g}"


def difference(plus: Sequence[Candidates], minus: Sequence[Candidates], level: float = LEVEL) -> Difference:
    r"""The sum of the means of the cells `plus` less that of the cells `minus`, each by its best candidate.

    The difference of two cells is `difference([a], [b])`. With s^2 and n of each mean,

        t = estimate / sqrt(sum s^2 / n),   degrees of freedom after Welch and Satterthwaite.

    The best of several candidates is too good by chance. So `plus` is above `minus` only if its chosen candidate is
    above *every* candidate of `minus`, and for the choice among k candidates of `plus`, against m of `minus`, the
    one-sided p value counts max(k, 1 + k/m) times; the other direction likewise, max(m, 1 + m/k) times. The two
    factors share the level: with one candidate each they are 2 and 2, a two-sided test. `low` and `high` are the
    differences that the same rule does not exclude at `level`. If cells add up, k and m count combinations.

    Nothing can be tested if a mean has one value, or if no value of the chosen candidates differs from another: a few
    rounded accuracies that are all the same are no proof that their spread is zero.
    """
    above, below = (list(itertools.product(*cells)) for cells in (plus, minus))
    estimate = _total(above[0]) - _total(below[0])
    n = min(sample.n for samples in (*above, *below) for sample in samples)
    if n < 2:
        return untested("no value" if n == 0 else "n = 1", estimate, n)
    if not math.isfinite(estimate):
        return untested("a value is not finite", estimate, n)
    k, m = len(above), len(below)
    p_above, low = _one_sided(above[0], below, max(k, 1 + k / m), level)
    p_below, high = _one_sided(below[0], above, max(m, 1 + m / k), level)
    if not has_spread(above[0], below[0]):
        return untested("no spread", estimate, n)
    return Difference(estimate, low, -high, p_above, p_below, n)


def _total(samples: Sequence[Sample]) -> float:
    return math.fsum(sample.mean for sample in samples)


def _one_sided(
    chosen: Sequence[Sample], others: Sequence[Sequence[Sample]], factor: float, level: float
) -> tuple[float, float]:
    """The p value of `chosen` being above all `others`, times `factor`; and by how much it is at least above them.

    One of them that has no spread, and neither has `chosen`, is not known to be below it, unless it is further below
    than the first of them, which then decides.
    """
    first = _total(others[0])
    others = [other for other in others if has_spread(chosen, other) or other is others[0] or _total(other) > first]
    if not all(has_spread(chosen, other) for other in others):
        return 1.0, -math.inf
    gaps = np.array([_total(chosen) - _total(other) for other in others])
    parts = np.array([[(s.std**2 / s.n, s.n - 1) for s in (*chosen, *other)] for other in others])
    variances = parts[..., 0]
    errors = np.sqrt(variances.sum(axis=1))
    freedom = variances.sum(axis=1) ** 2 / (variances**2 / parts[..., 1]).sum(axis=1)
    p = special.stdtr(freedom, -gaps / errors).max()
    reach = special.stdtrit(freedom, 1 - level / factor) * errors
    return float(min(1.0, factor * p)), float((gaps - reach).min())


def has_spread(one: Sequence[Sample], other: Sequence[Sample]) -> bool:
    """Whether the values of any of the samples differ by more than rounding."""
    samples = (*one, *other)
    largest = max(abs(sample.mean) for sample in samples)
    return math.sqrt(sum(s.std**2 / s.n for s in samples)) > 4 * sys.float_info.epsilon * largest


def more_diverged(one: tuple[int, int], other: tuple[int, int]) -> Difference:
    """Whether `one` of two cells, of which at least one has no finished seed, diverges less: Fisher's exact test.

    Each is (finished seeds, lost seeds). p = C(f, a) / C(f + l, a): of all ways to deal out f finished and l lost seeds
    the share that gives a cell of a seeds none of the lost ones (or none of the others); counted twice, for two sides.
    Three that finished against three that diverged come to p = 0.1.
    """
    finished, lost = one[0] + other[0], one[1] + other[1]
    if not finished:
        return untested("all seeds of both diverged")
    dead = one if not one[0] else other
    p = min(1.0, 2 * math.comb(lost, sum(dead)) / math.comb(finished + lost, sum(dead)))
    above, below = (1.0, p) if dead is one else (p, 1.0)
    return Difference(math.nan, math.nan, math.nan, above, below, min(sum(one), sum(other)))
