"""Bounds of looks: against closed forms and a simulation; intervals and power against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from polysweep.sweeps.planning.sequential import bounds, equivalence_power, interval, power, shown_gap
from polysweep.sweeps.planning.welch import Sample
from tests.support.replicated_worlds import error_rates, most_by_chance

LOOKS = [3, 5, 10, 20]


def test_one_look_is_the_fixed_test() -> None:
    assert bounds(0.05, [7]) == pytest.approx([0.05], rel=1e-9)


def test_what_is_spent_grows_with_the_square_of_the_seeds() -> None:
    """The first bound is what is spent there; two looks against the bivariate normal distribution."""
    first, second = bounds(0.05, [10, 20])
    assert first == pytest.approx(0.05 / 4, rel=1e-9)
    ends = [stats.norm.isf(first / 2), stats.norm.isf(second / 2)]
    both = stats.multivariate_normal([0, 0], [[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]])
    inside = both.cdf(ends, lower_limit=[-end for end in ends])
    assert 1 - inside == pytest.approx(0.05, abs=1e-6)


def test_each_look_spends_its_share() -> None:
    """Paths of normal steps leave the bounds for the first time at look j in 0.05 ((j / 5)^2 - ((j - 1) / 5)^2)."""
    z = stats.norm.isf(np.array(bounds(0.05, [1, 2, 3, 4, 5])) / 2)
    exits = np.random.default_rng(0).standard_normal((400_000, 5)).cumsum(axis=1) / np.sqrt([1, 2, 3, 4, 5])
    first = (abs(exits) > z).cumsum(axis=1).cumsum(axis=1) == 1
    spent = 0.05 * (np.arange(1, 6) / 5) ** 2
    assert first.mean(axis=0).cumsum() == pytest.approx(spent, abs=3 * math.sqrt(0.05 / 400_000))


@pytest.mark.parametrize("ratio", [1.0, 2.0, 5.0, 10.0])
@pytest.mark.parametrize("comparisons", [1, 4])
def test_all_looks_together_keep_the_level_whatever_the_stds(ratio: float, comparisons: int) -> None:
    worlds = 100_000
    rate = error_rates(bounds(0.05 / comparisons, LOOKS), LOOKS, ratio, worlds)
    assert rate < most_by_chance(0.05 / comparisons, worlds)
    assert rate > 0.7 * 0.05 / comparisons, "and do not waste it"


def test_a_naive_rule_does_not() -> None:
    assert error_rates([0.05] * 4, LOOKS, 1.0, 20_000) > 0.1, "four looks at 0.05"


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
