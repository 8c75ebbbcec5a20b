"""The test of a difference of means: against scipy, and against answers worked out by hand."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from polysweep.analysis.tables.statistics import compare_means
from polysweep.sweeps.planning.welch import Sample, difference, more_diverged, p_text


def test_the_best_of_several_candidates_has_to_beat_every_one_and_pays_for_the_choice() -> None:
    """One candidate against three: its one-sided p counts 4/3 times, theirs 4 times, and the worst of three decides."""
    one, rivals = Sample.of([5, 6, 7]), [Sample.of([2, 3, 4]), Sample.of([1, 3, 5]), Sample.of([0, 1, 2])]
    found = difference([[one]], [rivals])
    tails = [stats.ttest_ind([5, 6, 7], v, equal_var=False, alternative="greater").pvalue
             for v in ([2, 3, 4], [1, 3, 5], [0, 1, 2])]  # fmt: skip
    assert found.p_above == pytest.approx(max(tails) * 4 / 3) and found.estimate == 3
    assert found.p_below == 1
    turned = difference([rivals], [[one]])
    assert turned.p_below == pytest.approx(found.p_above) and turned.high == pytest.approx(-found.low)
    alone = difference([[one]], [rivals[:1]])
    assert alone.p_above == pytest.approx(2 * tails[0]) and alone.high < found.high


def test_a_difference_of_differences_adds_variances() -> None:
    """(4 - 2) - (7 - 6) with equal variances 1/3 of each mean: 1 / sqrt(4/3), 8 degrees of freedom."""
    cells = [[Sample(mean, 1.0, 3)] for mean in (4.0, 6.0, 2.0, 7.0)]
    found = difference(cells[:2], cells[2:])
    assert found.estimate == 1 and found.p == pytest.approx(2 * stats.t.sf(1 / math.sqrt(4 / 3), 8))


def test_what_nothing_can_be_said_of_is_said() -> None:
    for found, reason in (
        (compare_means([1.0], [2.0]), "n = 1"),
        (compare_means([], [2.0]), "no value"),
        (compare_means([1.0, 1.0], [0.5, 0.5]), "no spread"),
    ):
        assert math.isnan(found.p) and math.isnan(found.low) and found.reason == reason
    assert (p_text(math.nan), p_text(0.214), p_text(1e-9)) == ("", "p = 0.21", "p < 0.0001")


def test_cells_that_diverged_are_compared_by_fishers_exact_test() -> None:
    assert more_diverged((3, 0), (0, 3)).p == pytest.approx(stats.fisher_exact([[3, 0], [0, 3]]).pvalue)
    assert more_diverged((3, 0), (0, 3)).is_above and not more_diverged((0, 3), (3, 0)).is_above
    assert more_diverged((5, 0), (0, 5)).p == pytest.approx(2 / math.comb(10, 5))
    assert more_diverged((2, 1), (0, 3)).p == pytest.approx(2 * math.comb(4, 3) / math.comb(6, 3))
    assert more_diverged((0, 3), (0, 3)).reason == "all seeds of both diverged"
