"""Worlds of known truth: how often the product's sentences are false, and how often it sees what is there."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from polysweep.analysis.published.claims import BEST, SAFEGUARD, STEP_SIZE
from polysweep.analysis.tables.statistics import FAILS, HOLDS, holm, mean_interval
from polysweep.sweeps.planning.welch import LEVEL, Sample, difference
from tests.support.worlds import (
    CLAIMS,
    PRINTED,
    World,
    no_difference,
    opposite,
    paper,
    rates,
    same,
)

Run = Callable[..., subprocess.CompletedProcess[str]]
TESTED = tuple(claim for claim in CLAIMS if claim != SAFEGUARD)


def at_most(draws: int, rate: float = LEVEL) -> int:
    """The most that so many draws may show, once in a thousand, of something that is true at this rate."""
    return int(stats.binom.ppf(0.999, draws, rate))


@pytest.mark.parametrize("draws", [6, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "world",
    [World(no_difference), World(no_difference, same, n=5), World(no_difference, same, digits=3)],
    ids=["printed stds", "one std, n = 5", "rounded"],
)
def test_where_nothing_differs_hardly_any_claim_is_judged(world: World, draws: int) -> None:
    """Printed stds differ by a factor of 28 between cells: that is what a pooled variance does not survive."""
    found = rates(world, draws)
    for claim in TESTED:
        false = found.draws_with[claim, HOLDS] + found.draws_with[claim, FAILS]
        assert false <= at_most(draws), f"{claim}: {false} of {draws} families have a false verdict"


@pytest.mark.parametrize("draws", [6, pytest.param(400, marks=pytest.mark.long)])
def test_where_the_paper_is_true_claims_hold_and_none_fails(draws: int) -> None:
    found = rates(World(paper), draws)
    for claim in TESTED:
        assert found.draws_with[claim, FAILS] <= at_most(draws)
    best = found.rows[BEST, HOLDS] / (96 * draws)
    assert best > 0.35, "three seeds, Holm over 96 tests"
    assert found.rows[STEP_SIZE, HOLDS] == 32 * draws, "3 points between step sizes are always seen"
    assert found.rows[SAFEGUARD, HOLDS] == 2 * draws
    five = rates(World(paper, n=5), max(draws // 4, 5))
    assert five.rows[BEST, HOLDS] / (128 * five.draws) > 0.95, "five seeds see nearly all"


@pytest.mark.parametrize("draws", [6, pytest.param(400, marks=pytest.mark.long)])
def test_where_the_opposite_is_true_claims_fail_and_none_holds(draws: int) -> None:
    found = rates(World(opposite), draws)
    for claim in TESTED:
        assert found.draws_with[claim, HOLDS] <= at_most(draws), claim
        assert found.rows[claim, FAILS] > 0.9 * found.rows[claim, HOLDS] + 8 * draws, claim


@pytest.mark.parametrize("draws", [6, pytest.param(20, marks=pytest.mark.long)])
def test_a_safeguard_that_is_often_active_is_not_called_rare(draws: int) -> None:
    found = rates(World(paper, stalled=0.3), 5)
    assert found.rows[SAFEGUARD, FAILS] == 10 and not found.rows[SAFEGUARD, HOLDS]
    at_the_limit = rates(World(paper, stalled=0.05), draws)
    assert at_the_limit.draws_with[SAFEGUARD, HOLDS] + at_the_limit.draws_with[SAFEGUARD, FAILS] <= at_most(draws)


@pytest.mark.parametrize("draws", [6, pytest.param(20, marks=pytest.mark.long)])
def test_a_failed_seed_and_a_diverged_one_cost_verdicts_and_make_none_false(draws: int) -> None:
    """Of the leading constant step size of every row a seed has failed: nothing is said of constant. Or it diverged."""
    places = range(0, 1152, 18)  # a row has 3 x 3 runs of constant, 2 x 3 of cosine, 3 of Polyak
    failed = rates(World(paper, outcomes=dict.fromkeys(places, "failed")), 3)
    for claim in (BEST, STEP_SIZE):
        assert failed.rows[claim, "undecided"] == {BEST: 128, STEP_SIZE: 32}[claim] * 3 - failed.rows[claim, "no runs"]
        assert not failed.rows[claim, HOLDS] + failed.rows[claim, FAILS]
    diverged = rates(World(no_difference, outcomes=dict.fromkeys(places, "diverged")), draws)
    for claim in TESTED:
        assert diverged.draws_with[claim, HOLDS] + diverged.draws_with[claim, FAILS] <= at_most(draws)


# Why Welch: level and power of the three ways to a variance, by the same rule.


def family(values: dict[str, np.ndarray], pooled: str) -> tuple[int, int]:
    """How many of 64 rows hold and fail by the rule of `difference`, with variances pooled over rows, all, or none."""
    every = np.concatenate(list(values.values()), axis=1)
    spread = every.var(axis=2, ddof=1)
    rows = []
    for at in range(64):
        variance = {"none": None, "row": spread[at].mean(), "all": spread.mean()}[pooled]
        n = every.shape[2]
        freedom = {"none": n - 1, "row": (n - 1) * 6, "all": (n - 1) * every.shape[1] * 64}[pooled]

        def tail(one: np.ndarray, other: np.ndarray, variance: Any = variance, freedom: int = freedom) -> float:
            parts = [one.var(ddof=1), other.var(ddof=1)] if variance is None else [variance, variance]
            t = (one.mean() - other.mean()) / math.sqrt(sum(parts) / len(one))
            df = freedom * sum(parts) ** 2 / (parts[0] ** 2 + parts[1] ** 2) if variance is None else freedom
            return float(stats.t.sf(t, df))

        ours, rivals = values["polyak"][at][0], [*values["constant"][at], *values["cosine"][at]]
        best = max(rivals, key=lambda one: one.mean())
        above, below = 1.2 * max(tail(ours, rival) for rival in rivals), 6 * tail(best, ours)
        rows.append((min(1.0, above, below), above < below))
    judged = list(zip(holm([p for p, _ in rows]), [is_above for _, is_above in rows], strict=True))
    return sum(p < LEVEL and above for p, above in judged), sum(p < LEVEL and not above for p, above in judged)


def test_a_pooled_variance_claims_differences_that_are_not_there() -> None:
    """Welch: 3 % of families. Pooled over the row 30 %, over all cells 40 % (300 draws each): stds differ by cell."""
    rng = np.random.default_rng(1)
    stds = {name: np.array([std for key, (_, std) in PRINTED.items() if key[5] == name])
            for name in ("constant", "cosine", "polyak")}  # fmt: skip
    false = dict.fromkeys(("none", "row", "all"), 0)
    draws = 25
    for _ in range(draws):
        values = {
            name: rng.normal(0.0, stds[name][:, None, None], (64, {"constant": 3, "cosine": 2, "polyak": 1}[name], 3))
            for name in stds
        }
        for pooled in false:
            false[pooled] += any(family(values, pooled))
    assert false["none"] <= at_most(draws) < false["all"], false


# Intervals cover what they say.


def error(draws: int) -> float:
    """Three standard errors of a coverage of 95 %: that of the simulation, which is 0.5 % in the long ones."""
    return 3 * math.sqrt(0.05 * 0.95 / draws)


@pytest.mark.parametrize("draws", [1500, pytest.param(20_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("means", [(0.0,), (0.0, 0.0), (0.0, 0.0, 0.0), (0.0, -0.5, -1.0), (0.0, -9.0, -9.0)])
def test_the_interval_of_a_mean_covers_the_chosen_candidates_mean(means: tuple[float, ...], n: int, draws: int) -> None:
    """93 to 97 %; of equal candidates a little more, as the best is then never too low."""
    rng = np.random.default_rng(n)
    covered = 0
    for values in rng.normal(np.array(means)[:, None], 1.0, (draws, len(means), n)):
        best = int(values.mean(axis=1).argmax())
        low, high = mean_interval(Sample.of(values[best]), len(means))
        covered += low <= means[best] <= high
    is_alone = len(means) == 1 or means[1] < -5
    assert 0.93 - error(draws) <= covered / draws <= (0.97 if is_alone else 0.98) + error(draws)


@pytest.mark.parametrize("draws", [1000, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize(
    ("one", "other", "stds", "most"),
    [
        ((0.0,), (0.0,), (1.0, 1.0), 0.97),
        ((0.0,), (1.0,), (1.0, 5.0), 0.97),
        ((0.0,), (0.0, -9.0, -9.0), (1.0, 1.0), 0.97),
        ((0.0,), (0.0, 0.0, 0.0), (1.0, 1.0), 0.99),
        ((0.0, -9.0, -9.0), (0.0, -9.0, -9.0), (1.0, 1.0), 0.99),
    ],
)
def test_the_interval_of_a_difference_covers_it(
    one: tuple[float, ...], other: tuple[float, ...], stds: tuple[float, float], most: float, n: int, draws: int
) -> None:
    """The difference of the best candidates; several on both sides cost some length, and it is never too short."""
    rng = np.random.default_rng(10 * n)
    covered = 0
    for _ in range(draws):
        cells = [
            sorted((Sample.of(row) for row in rng.normal(np.array(means)[:, None], std, (len(means), n))), reverse=True)
            for means, std in zip((one, other), stds, strict=True)
        ]
        found = difference([cells[0]], [cells[1]])
        covered += found.low <= max(one) - max(other) <= found.high
    assert 0.93 - error(draws) <= covered / draws <= most + error(draws)


@pytest.mark.parametrize(("n", "shift"), [(3, 4.0), (5, 2.5), (10, 1.5)])
def test_the_power_is_as_computed(n: int, shift: float) -> None:
    """Given the ratio r of the variances, t has 2 (n - 1) degrees of freedom and only Welch's limit depends on r."""

    def given_ratio(r: float) -> float:
        limit = stats.t.isf(LEVEL / 2, (n - 1) * (1 + r) ** 2 / (1 + r * r))
        return float(stats.nct.sf(limit, 2 * (n - 1), shift / math.sqrt(2 / n)))

    computed, _ = integrate.quad(lambda u: given_ratio(stats.f.ppf(u, n - 1, n - 1)), 1e-9, 1 - 1e-9, limit=200)
    rng, draws = np.random.default_rng(0), 1500
    values = rng.normal([[[shift]], [[0.0]]], 1.0, (draws, 2, 1, n))
    cells = [[[Sample.of(cell[0])] for cell in pair] for pair in values]
    seen = sum(found.p < LEVEL and found.is_above for found in (difference([a], [b]) for a, b in cells)) / draws
    assert seen == pytest.approx(computed, abs=4 * math.sqrt(computed * (1 - computed) / draws))
