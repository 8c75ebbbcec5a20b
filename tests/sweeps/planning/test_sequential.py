"""Bounds of looks: against their formula and a simulation; intervals and power against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from polysweep.sweeps.planning.sequential import bounds, equivalence_power, interval, power, shown_gap
from polysweep.sweeps.planning.welch import Sample
from tests.support.replicated_worlds import error_rates, mean_seeds

LOOKS = [3, 5, 10, 20]


def test_one_look_is_the_fixed_test() -> None:
    assert bounds(0.05, [7]) == pytest.approx([0.05], rel=1e-9)


def test_what_is_spent_grows_with_the_square_of_the_seeds() -> None:
    levels = bounds(0.05, LOOKS)
    assert np.cumsum(levels) == pytest.approx([0.05 * (seeds / 20) ** 2 for seeds in LOOKS])


@pytest.mark.parametrize("ratio", [1.0, 2.0, 5.0, 30.0])
@pytest.mark.parametrize("comparisons", [1, 4])
def test_all_looks_together_keep_the_level_whatever_the_stds(ratio: float, comparisons: int) -> None:
    worlds = 100_000
    rate = error_rates(bounds(0.05 / comparisons, LOOKS), LOOKS, ratio, worlds)
    assert rate < 0.05 / comparisons
    assert rate > 0.75 * 0.05 / comparisons, "and do not waste it"


def test_a_naive_rule_does_not() -> None:
    assert error_rates([0.05] * 4, LOOKS, 1.0, 20_000, fewer=0) > 0.12, "four looks at 0.05"


@pytest.mark.parametrize(("gap", "power", "most_seeds"), [(1.0, 0.82, 18), (2.0, 0.999, 11), (4.0, 0.999, 7)])
def test_looks_show_what_the_fixed_test_at_the_last_shows_with_fewer_seeds(
    gap: float, power: float, most_seeds: float
) -> None:
    """Differences in stds; 20 seeds at once show one std in 87 % of cases, and need 20 of every difference."""
    levels, worlds = bounds(0.05, LOOKS), 20_000
    rate = error_rates(levels, LOOKS, 1.0, worlds, gap)
    assert power < rate > error_rates([0.05], [20], 1.0, worlds, gap, fewer=0) - 0.04
    assert mean_seeds(levels, LOOKS, worlds, gap) < most_seeds


def test_an_interval_is_welchs_with_two_degrees_of_freedom_less() -> None:
    one, other = Sample(1.0, 0.2, 10), Sample(0.7, 0.4, 12)
    variances = 0.04 / 10, 0.16 / 12
    welch = sum(variances) ** 2 / (variances[0] ** 2 / 9 + variances[1] ** 2 / 11)
    reach = stats.t.isf(0.005, welch - 2) * math.sqrt(sum(variances))
    assert interval(one, other, 0.01) == pytest.approx((0.3 - reach, 0.3 + reach))
    few = stats.t.isf(0.005, 2) * math.sqrt(2 * 0.04 / 3)
    assert interval(Sample(1.0, 0.2, 3), Sample(1.0, 0.2, 3), 0.01) == pytest.approx((-few, few)), "at least n - 1"


def test_power_is_what_a_simulation_comes_to() -> None:
    rng, seeds, bound = np.random.default_rng(1), 10, 0.02
    one, other = rng.normal(0.5, 0.4, (20_000, seeds)), rng.normal(0.0, 0.4, (20_000, seeds))
    same = rng.normal(0.0, 0.4, (20_000, seeds))

    def ends(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        samples = zip(map(Sample.of, a[:2000]), map(Sample.of, b[:2000]), strict=True)
        return np.array([interval(x, y, bound) for x, y in samples])

    assert power((0.4, 0.4), seeds, bound, 0.5) == pytest.approx((ends(one, other)[:, 0] > 0).mean(), abs=0.04)
    equal = (abs(ends(same, other)) < 0.8).all(axis=1).mean()
    assert equivalence_power((0.4, 0.4), seeds, bound, 0.8) == pytest.approx(equal, abs=0.04)
    gap = shown_gap((0.4, 0.2), seeds, bound, 0.8)
    assert power((0.4, 0.2), seeds, bound, gap) == pytest.approx(0.8, rel=1e-6)
