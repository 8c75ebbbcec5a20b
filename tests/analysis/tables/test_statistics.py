"""Means, tests and intervals: against scipy, and against answers worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from polysweep.analysis.data.from_store import protocol_of
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import edge_warnings, render
from polysweep.analysis.tables.mean_std import row_verdicts
from polysweep.analysis.tables.statistics import (
    Sample,
    compare_means,
    difference,
    holm,
    mean_interval,
    more_diverged,
    p_text,
    rarer,
)
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.trainer.config import TrialConfig
from tests.support.made import SPEC, by_lr, cell, sweep

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


# What a choice says of itself.


def test_a_choice_says_by_how_much_it_won_and_over_what(tmp_path: Path) -> None:
    chosen = cell(select(sweep(tmp_path, by_lr)), 0.1, "constant")
    assert (chosen["runner_up"], chosen["candidates"], chosen["budget"]) == ("lr=1.0", 3, 9)
    assert chosen["margin"] == pytest.approx(0.10) and (chosen["ties"], chosen["edge"]) == (0, "")
    alone = cell(select(sweep(tmp_path / "other", by_lr)), 0.1, "polyak")
    assert math.isnan(alone["margin"]) and (alone["runner_up"], alone["budget"]) == ("", 3)


def test_ties_and_edges_are_said(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: [0.7] if c.lr == 0.1 else [0.8]))
    chosen = cell(selection, 0.1, "constant")
    assert (chosen["lr"], chosen["ties"], chosen["edge"], chosen["margin"]) == (0.01, 1, "lr", 0.0)
    text = render(selection, "markdown")
    assert "at the edge of its grid, so a better value may lie outside: constant lr" in text
    assert "ties, decided by the order in the spec: constant 1" in text
    assert edge_warnings(selection) == [
        "lr: in 2 of 4 cells the chosen value is at the edge of its grid; a better one may lie outside"
    ]


def test_the_best_is_compared_with_the_runner_up_over_seeds(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.rho == 0.4 and config.seed == 2 and config.scheduler == "polyak":
            return "diverged"
        return [0.9 + 0.01 * config.seed + (0.02 * (config.seed + 1) if config.scheduler == "polyak" else 0)]

    variants = [{"scheduler": {"value": "constant"}, "lr": {"value": 0.1}}, SPEC["variants"][1]]
    selection = select(sweep(tmp_path, score, variants=variants))
    first, second = row_verdicts(selection, selection.cells)
    assert (first.best, first.runner_up, first.difference.n) == ("polyak", "constant", 3)
    p = stats.ttest_ind([0.92, 0.95, 0.98], [0.9, 0.91, 0.92], equal_var=False).pvalue
    assert first.difference.p == pytest.approx(p) and first.p == pytest.approx(2 * p), "Holm over the two rows"
    assert (second.best, second.difference.n, second.p) == ("constant", 2, 1.0), "Polyak has lost a seed"
    assert first.text(["rho"], "test/top1").endswith("(n = 3): not shown")
    assert {key[1] for key in first.marked} == {"polyak", "constant"}, "what cannot be told from the best is marked too"


@pytest.mark.parametrize(
    ("entry", "values", "edges"),
    [
        ({"min": 0.0, "max": 1.0}, (0.5, 0.06), set()),
        ({"min": 0.0, "max": 1.0}, (0.5, 0.04), {0.04}),
        ({"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0}, (0.1, 2e-4), set()),
        ({"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0}, (0.1, 1.2e-4, 0.9), {1.2e-4, 0.9}),
        ({"distribution": "normal", "mu": 0.5, "sigma": 0.1}, (0.1, 0.9), set()),
        ({"values": [0.01, 0.1, 0.2]}, (0.1, 0.2), {0.2}),
        ({"value": 0.1}, (0.1,), set()),
        ({"values": [0.1]}, (0.1,), set()),
        ({"distribution": "q_uniform", "min": 0.05, "max": 1.0, "q": 0.1}, (0.1, 0.5), {0.1}),
    ],
)
def test_the_edge_of_a_drawn_search_is_that_of_its_range(entry: dict, values: tuple, edges: set) -> None:
    """Not of the values that happened to be drawn: of two one would always be the smallest."""
    text = {**SPEC, "method": "random", "run_cap": 3, "tuned": ["lr"], "metric": SPEC["metric"]}
    text["variants"] = [{"scheduler": {"value": "constant"}, "lr": entry}]
    found = protocol_of(SweepSpec.parse(json.dumps(text), "drawn.yaml").as_sweep(), "here").ranges.get((0, "lr"))
    assert {value for value in values if found is not None and found.is_at_end(value)} == edges
