"""Whether a difference of means is more than chance, and how sure a mean is. Pure: values in, numbers out.

With n = 3 little can be shown: the paired t test, which trusts that differences are normal, needs a mean difference of
2.48 times their standard deviation for p < 0.05, and no test without that trust can come below p = 0.25 (one of 8 ways
to choose the signs of three differences, two-sided).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

LEVEL: Final = 0.05
RESAMPLES: Final = 9_999
BATCH: Final = 500
SMALLEST: Final = 1e-4
FEW: Final = 6
"""Below so many pairs no test of signs can reach p < 0.05: 2 / 2**5 = 0.0625."""


@dataclass(frozen=True)
class Comparison:
    """`difference` of two means, with the two-sided p value of the null hypothesis that there is none."""

    difference: float
    p: float  # NaN where nothing can be tested
    test: str  # `paired t`, `Welch t`, or why there is none
    n: int  # pairs, or the smaller number of values

    @property
    def is_shown(self) -> bool:
        """Whether the difference is more than chance, at the level 0.05."""
        return self.p < LEVEL

    @property
    def p_text(self) -> str:
        """`p = 0.21`, or `p < 0.0001`; empty where nothing can be tested."""
        if math.isnan(self.p):
            return ""
        return f"p = {self.p:.2g}" if self.p >= SMALLEST else f"p < {SMALLEST:g}"

    @property
    def limit(self) -> str:
        """What so few values cannot show, empty where there are enough."""
        if self.n < 2:
            return "one seed shows no spread: nothing can be tested"
        if self.n < FEW:
            least = 2 / 2**self.n
            return (
                f"n = {self.n}: the t test trusts that differences are normal; "
                f"without that trust no test of {self.n} pairs comes below p = {least:.3g}"
            )
        return ""


def compare_means(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    """Mean of `first` minus that of `second`, both by seed.

    Where both have the same seeds the t test is paired over them (as `scipy.stats.ttest_rel`: a seed gives both
    the same initial weights and mini-batches), else it is Welch's (as `ttest_ind` with `equal_var=False`).
    """
    a, b = list(first.values()), list(second.values())
    n = min(len(a), len(b))
    if not n:
        return Comparison(math.nan, math.nan, "no value", 0)
    difference = float(np.mean(a) - np.mean(b))
    if n < 2:
        return Comparison(difference, math.nan, "n = 1", n)
    if first.keys() == second.keys():
        seeds = sorted(first, key=str)
        pairs = np.array([[first[seed], second[seed]] for seed in seeds])
        gaps = pairs[:, 0] - pairs[:, 1]
        if np.ptp(gaps) <= 4 * np.finfo(float).eps * np.abs(pairs).max():
            return _without_spread(difference, n)
        t = float(gaps.mean() / (gaps.std(ddof=1) / math.sqrt(n)))
        return Comparison(difference, _two_sided(t, n - 1), "paired t", n)
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return _without_spread(difference, n)
    ours, theirs = float(np.var(a, ddof=1)) / len(a), float(np.var(b, ddof=1)) / len(b)
    freedom = (ours + theirs) ** 2 / (ours**2 / (len(a) - 1) + theirs**2 / (len(b) - 1))
    return Comparison(difference, _two_sided(difference / math.sqrt(ours + theirs), freedom), "Welch t", n)


def _without_spread(difference: float, n: int) -> Comparison:
    """A few rounded accuracies may differ all by the same: that is no proof that their spread is zero."""
    if abs(difference) < 1e-15:
        return Comparison(0.0, 1.0, "paired t", n)
    return Comparison(difference, math.nan, "every difference is the same", n)


def _two_sided(t: float, freedom: float) -> float:
    """The p value of Student's t; `scipy.stats`, with the same answers, takes 0.6 s to import."""
    return float(2 * special.stdtr(freedom, -abs(t)))


def bootstrap_intervals(
    groups: Sequence[Sequence[float]], *, confidence: float = 0.95, seed: int = 0
) -> list[tuple[float, float]]:
    """The percentile bootstrap interval of each group's mean, (NaN, NaN) for fewer than two values.

    From a generator of its own, so that the same values give the same interval in whatever order the groups come.
    """
    from scipy import stats

    found = [(math.nan, math.nan)] * len(groups)
    by_size: dict[int, list[int]] = {}
    for at, group in enumerate(groups):
        by_size.setdefault(len(group), []).append(at)
    for size, places in by_size.items():
        if size < 2:
            continue
        values = np.sort(np.array([groups[at] for at in places], dtype=float), axis=1)
        drawn = stats.bootstrap(
            (values,), np.mean, axis=1, method="percentile", confidence_level=confidence,
            n_resamples=RESAMPLES, batch=BATCH, rng=np.random.default_rng(seed),
        )  # fmt: skip
        low, high = drawn.confidence_interval
        for at, interval in zip(places, zip(low, high, strict=True), strict=True):
            found[at] = (float(interval[0]), float(interval[1]))
    return found


def z_score(mean: float, std: float, n: int, other: float, other_std: float, other_n: int) -> float:
    """(mean - other) / sqrt(std^2 / n + other_std^2 / other_n); NaN where that is not defined."""
    variance = std**2 / n + other_std**2 / other_n if n and other_n else math.nan
    return (mean - other) / math.sqrt(variance) if variance > 0 else math.nan
