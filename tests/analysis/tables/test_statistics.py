"""Means, tests and intervals: against scipy, and against answers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from polysweep.analysis.tables.statistics import compare_means, holm, mean_interval, rarer
from polysweep.sweeps.planning.welch import Sample

numbers = st.floats(-100, 100, allow_nan=False)


groups = st.lists(numbers, min_size=2, max_size=9)


@given(groups, groups)
def test_a_difference_of_two_means_is_welchs_test(a: list[float], b: list[float]) -> None:
    assume(np.std(a) > 1e-6 and np.std(b) > 1e-6)
    found, expected = compare_means(a, b), stats.ttest_ind(a, b, equal_var=False)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9, abs=1e-300)
    assert found.estimate == pytest.approx(np.mean(a) - np.mean(b), abs=1e-12)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9, abs=1e-9)
    assert (found.p < 0.05) == (not found.low <= 0 <= found.high), "interval and test say the same"
    turned = compare_means(b, a)
    assert (turned.p_above, turned.high) == pytest.approx((found.p_below, -found.low), rel=1e-9, abs=1e-12)


def test_a_difference_worked_out_by_hand() -> None:
    """1, 2, 3 against 11, 12, 13: t = 10 / sqrt(2/3), 4 degrees of freedom, p = 0.000256."""
    found = compare_means({0: 11, 1: 12, 2: 13}, {5: 1, 6: 2, 7: 3})
    assert (found.estimate, found.n, found.is_above) == (10, 3, True)
    t = 10 / math.sqrt(2 / 3)
    x = 4 / (4 + t * t)
    assert found.p == pytest.approx(1 - math.sqrt(1 - x) * (1 + x / 2)), "the closed form for 4 degrees of freedom"


@given(st.lists(st.floats(0, 1), max_size=9))
def test_holms_adjustment_against_its_definition(p_values: list[float]) -> None:
    adjusted = holm([math.nan, *p_values])
    assert math.isnan(adjusted[0]), "what could not be tested is not counted"
    for p, found in zip(p_values, adjusted[1:], strict=True):
        smaller = sorted(q for q in p_values if q <= p)
        steps = [min(1.0, (len(p_values) - sorted(p_values).index(q)) * q) for q in smaller]
        assert found == pytest.approx(max(steps)) and found >= p


def test_a_share_of_trials_is_judged_exactly() -> None:
    for count, of in ((0, 96), (3, 12), (12, 12), (1, 96)):
        found, expected = rarer(count, of, 0.05), stats.binomtest(count, of, 0.05)
        low, high = expected.proportion_ci(method="exact")
        assert (found.low, found.high) == pytest.approx((0.05 - high, 0.05 - low), abs=1e-12)
        tails = [stats.binomtest(count, of, 0.05, alternative=side).pvalue for side in ("less", "greater")]
        assert (found.p_above, found.p_below) == pytest.approx([min(1, 2 * tail) for tail in tails])
    assert rarer(0, 96, 0.05).p < 0.05 and rarer(0, 12, 0.05).p > 0.05, "12 trials are too few to show that it is rare"


def test_an_interval_of_a_mean_is_students_and_longer_downwards_for_the_best_of_several() -> None:
    sample = Sample.of([0.9, 0.91, 0.95])
    expected = stats.t.interval(0.95, 2, loc=sample.mean, scale=sample.std / math.sqrt(3))
    assert mean_interval(sample) == pytest.approx(expected)
    low, high = mean_interval(sample, candidates=3)
    assert low < expected[0] and high < expected[1]
    assert math.isnan(mean_interval(Sample.of([0.9]))[0])
