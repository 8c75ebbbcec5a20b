"""How sure a mean is, and several tests together. Pure: values in, numbers out. The test itself is `planning.welch`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from scipy import special

from polysweep.sweeps.planning.welch import LEVEL, Difference, Sample, difference, untested

HOLDS, FAILS, NOT_SHOWN, UNDECIDED, NO_RUNS = "holds", "fails", "not shown", "undecided", "no runs"
"""The verdicts on a claim."""


def compare_means(
    first: Collection[float] | Mapping[object, float], second: Collection[float] | Mapping[object, float]
) -> Difference:
    """The mean of `first` less that of `second`: values, or values by seed. See `difference`.

    Not paired over seeds: a seed gives both the same weights and mini-batches, but after a few steps little of that is
    left (the correlation within seeds is 0.09 on the quickstart), and pairs cost half the degrees of freedom.
    """
    one, other = (Sample.of(list(v.values()) if isinstance(v, Mapping) else v) for v in (first, second))
    return difference([[one]], [[other]])


def mean_interval(sample: Sample, candidates: int = 1, level: float = LEVEL) -> tuple[float, float]:
    r"""Student's interval of a mean, (NaN, NaN) for fewer than two values and for values without spread.

    mean - t(1 - level / (1 + k)) s / sqrt(n)  to  mean + t(1 - level k / (1 + k)) s / sqrt(n), n - 1 degrees of freedom

    for the best of k `candidates`: with k = 1 the usual interval, with more a longer way down, because the mean of the
    best is too good by chance. It is `difference` against a number that is known.
    """
    if sample.n < 2 or not sample.std > 0:
        return math.nan, math.nan
    error = sample.std / math.sqrt(sample.n)
    down, up = special.stdtrit(sample.n - 1, [1 - level / (1 + candidates), 1 - level * candidates / (1 + candidates)])
    return sample.mean - float(down) * error, sample.mean + float(up) * error


def rarer(count: int, of: int, share: float) -> Difference:
    """By how much a share, of which `count` of `of` were seen, is below `share`: exact, binomial.

    The interval is `share` less that of Clopper and Pearson.
    """
    if not of:
        return untested("no value")
    below = min(1.0, 2 * float(special.bdtr(count, of, share)))
    above = min(1.0, 2 * float(special.bdtrc(count - 1, of, share))) if count else 1.0
    low = float(special.betaincinv(count, of - count + 1, LEVEL / 2)) if count else 0.0
    high = float(special.betaincinv(count + 1, of - count, 1 - LEVEL / 2)) if count < of else 1.0
    return Difference(share - count / of, share - high, share - low, below, above, of)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values: with i smaller ones among c, (c - i) p, never less than that of a smaller one.

    The chance of any false statement among those below a level is then at most that level. NaN, for what could not be
    tested, stays and is not counted.
    """
    order = sorted((at for at, p in enumerate(p_values) if not math.isnan(p)), key=lambda at: p_values[at])
    adjusted, least = [math.nan] * len(p_values), 0.0
    for rank, at in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p_values[at]))
        adjusted[at] = least
    return adjusted
