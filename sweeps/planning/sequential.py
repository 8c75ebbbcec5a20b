"""Looks at two cells whose seeds grow: bounds that keep a level over all looks, intervals, power. Pure.

docs/analysis.md has the rule in formulas, and `benchmarks/replication.py` its error rates in worlds of known truth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from scipy import special

from polysweep.sweeps.planning.welch import Sample

POWER: Final = 2
"""Of the share of seeds in the part of the level that is spent up to a look: late looks, with more seeds, get most."""
FEWER: Final = 2
"""Degrees of freedom less than Satterthwaite's, which at n = 3 and unequal stds are too many."""


def bounds(level: float, looks: Sequence[int]) -> list[float]:
    r"""The two-sided level of the test at each look, so that all looks together err with at most `level`.

    b_j = level (n_j^2 - n_{j-1}^2) / n_J^2,   n_0 = 0

    Up to n_j of n_J seeds level (n_j / n_J)^2 is spent (Lan and DeMets, Biometrika 1983). The sum of the b_j is the
    level, so that it holds however the looks depend on each other; bounds from the joint normal distribution would show
    a difference of one std in 85 % instead of 84 % of cases (n = 3, 5, 10, 20), and err in 5.2 % if stds are unequal.
    """
    spent = [level * (seeds / looks[-1]) ** POWER for seeds in looks]
    return [after - before for before, after in itertools.pairwise([0.0, *spent])]


def interval(one: Sample, other: Sample, bound: float) -> tuple[float, float]:
    """The interval of the difference of two means at a look: it leaves out the truth with a chance of at most `bound`.

    D - t(1 - bound / 2) se  to  D + t(1 - bound / 2) se,   se^2 = s1^2 / n1 + s2^2 / n2

    with Satterthwaite's degrees of freedom less 2, but at least those of the cell with fewer seeds.
    """
    variances = [sample.std**2 / sample.n for sample in (one, other)]
    gap, error = one.mean - other.mean, math.sqrt(sum(variances))
    reach = float(special.stdtrit(_freedom(variances, [one.n, other.n]), 1 - bound / 2)) * error
    return gap - reach, gap + reach


def _freedom(variances: Sequence[float], seeds: Sequence[int]) -> float:
    total = sum(variances)
    welch = total**2 / sum(variance**2 / (n - 1) for variance, n in zip(variances, seeds, strict=True))
    return max(min(seeds) - 1, welch - FEWER)


def power(stds: tuple[float, float], seeds: int, bound: float, gap: float) -> float:
    """The chance that a look at so many seeds per cell shows a true difference `gap`: noncentral t."""
    freedom, error, reach = _expected(stds, seeds, bound)
    return 1.0 - float(special.nctdtr(freedom, gap / error, reach)) if error else 1.0


def shown_gap(stds: tuple[float, float], seeds: int, bound: float, chance: float) -> float:
    """The true difference that such a look shows with this chance: the inverse of `power`."""
    freedom, error, reach = _expected(stds, seeds, bound)
    return float(special.nctdtrinc(freedom, 1 - chance, reach)) * error


def equivalence_power(stds: tuple[float, float], seeds: int, bound: float, margin: float) -> float:
    """The chance that a look at so many seeds per cell shows equal cells to be equivalent within `margin`."""
    freedom, error, reach = _expected(stds, seeds, bound)
    room = margin / error - reach if error else math.inf
    return max(0.0, 2 * float(special.stdtr(freedom, room)) - 1)


def _expected(stds: tuple[float, float], seeds: int, bound: float) -> tuple[float, float, float]:
    """Degrees of freedom, standard error and half width of the interval in standard errors, if these are the stds."""
    variances = [std**2 / seeds for std in stds]
    error = math.sqrt(sum(variances))
    freedom = _freedom(variances, [seeds, seeds]) if error else 1.0
    return freedom, error, float(special.stdtrit(freedom, 1 - bound / 2))
