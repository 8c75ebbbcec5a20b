"""Worlds of known truth: how often the product's sentences are false, and how often it sees what is there."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.published.claims import BEST, FAILS, HOLDS, SAFEGUARD, STEP_SIZE
from polysweep.analysis.published.comparison import compare
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.mean_std import row_verdicts
from polysweep.analysis.tables.statistics import LEVEL, Sample, difference, holm, mean_interval
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.problem import ridge
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.made import ONE_TABLE, SPEC, sweep
from tests.support.project import ROOT
from tests.support.worlds import (
    CLAIMS,
    FIELDS,
    PRINTED,
    PUBLISHED,
    World,
    drawn,
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


@pytest.mark.parametrize("draws", [20, pytest.param(1000, marks=pytest.mark.long)])
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


@pytest.mark.parametrize("draws", [20, pytest.param(400, marks=pytest.mark.long)])
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


@pytest.mark.parametrize("draws", [20, pytest.param(400, marks=pytest.mark.long)])
def test_where_the_opposite_is_true_claims_fail_and_none_holds(draws: int) -> None:
    found = rates(World(opposite), draws)
    for claim in TESTED:
        assert found.draws_with[claim, HOLDS] <= at_most(draws), claim
        assert found.rows[claim, FAILS] > 0.9 * found.rows[claim, HOLDS] + 8 * draws, claim


def test_a_safeguard_that_is_often_active_is_not_called_rare() -> None:
    found = rates(World(paper, stalled=0.3), 5)
    assert found.rows[SAFEGUARD, FAILS] == 10 and not found.rows[SAFEGUARD, HOLDS]
    at_the_limit = rates(World(paper, stalled=0.05), 20)
    assert at_the_limit.draws_with[SAFEGUARD, HOLDS] + at_the_limit.draws_with[SAFEGUARD, FAILS] <= at_most(20)


def test_a_failed_seed_and_a_diverged_one_cost_verdicts_and_make_none_false() -> None:
    """Of the leading constant step size of every row a seed has failed: nothing is said of constant. Or it diverged."""
    places = range(0, 1152, 18)  # a row has 3 x 3 runs of constant, 2 x 3 of cosine, 3 of Polyak
    failed = rates(World(paper, outcomes=dict.fromkeys(places, "failed")), 3)
    for claim in (BEST, STEP_SIZE):
        assert failed.rows[claim, "undecided"] == {BEST: 128, STEP_SIZE: 32}[claim] * 3 - failed.rows[claim, "no runs"]
        assert not failed.rows[claim, HOLDS] + failed.rows[claim, FAILS]
    diverged = rates(World(no_difference, outcomes=dict.fromkeys(places, "diverged")), 20)
    for claim in TESTED:
        assert diverged.draws_with[claim, HOLDS] + diverged.draws_with[claim, FAILS] <= at_most(20)


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


# The same through Stores and the commands.

SMALL: dict[str, Any] = {
    "parameters": ONE_TABLE,
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"values": [0.1, 0.01, 0.001]}},
        {"scheduler": {"value": "cosine"}, "lr": {"value": 0.1}, "lr_min": {"values": [0.001, 0.01]}},
        {"scheduler": {"value": "polyak"}},
    ],
    "tuned": ["lr", "lr_min"],
}


def scores(world: World, seed: int) -> Callable[[TrialConfig], list[float]]:
    """By config the accuracy that one draw of a world gives it."""
    runs = drawn(world, np.random.default_rng(seed)).runs
    columns = [*FIELDS, "scheduler", "lr", "lr_min", "seed"]
    by_key = {
        tuple(None if isinstance(v, float) and math.isnan(v) else v for v in row[:-1]): row[-1]
        for row in runs[[*columns, "best/test/top1"]]
        .astype(object)
        .where(lambda f: f.notna(), None)
        .to_numpy()
        .tolist()
    }

    def score(config: TrialConfig) -> list[float]:
        return [by_key[tuple(getattr(config, name) for name in columns)]]

    return score


def test_a_world_in_a_store_is_judged_as_in_memory(run: Run, tmp_path: Path) -> None:
    sweep(tmp_path / "store", scores(World(paper), 7), **SMALL)
    answer = run("compare", "made", "--published", "cifar", "--store", "store")
    assert answer.returncode == 0, answer.stderr
    memory = {
        (one.claim, one.where): one.found.p
        for one in compare(drawn(World(paper), np.random.default_rng(7)), PUBLISHED).claims
        if one.reading == "top-1"
        and one.dataset == "cifar10"
        and one.where.startswith("usam resnet20 cifar10 wd 0.0005")
    }
    stored = compare(sweep(tmp_path / "again", scores(World(paper), 7), **SMALL), PUBLISHED)
    found = {(one.claim, one.where): one.found.p for one in stored.claims if (one.claim, one.where) in memory
             and one.reading == "top-1"}  # fmt: skip
    assert len(found) == 7 and found == pytest.approx(memory)
    assert answer.stdout.count("| holds ") >= 4 and "| fails " not in answer.stdout.partition("| the safeguard")[0]


def test_a_failed_seed_swaps_no_candidate(run: Run, tmp_path: Path) -> None:
    """lr = 0.1 is the better by 15 points and its third seed failed: no table says that Polyak beats the other one."""
    values = {0.1: (0.950, 0.954, "failed"), 0.01: (0.800, 0.803, 0.806), None: (0.900, 0.902, 0.904)}

    def score(config: TrialConfig) -> list[float] | str:
        value = values[config.lr][config.seed]
        return value if isinstance(value, str) else [value]

    variants = [{"scheduler": {"value": "constant"}, "lr": {"values": [0.1, 0.01]}}, {"scheduler": {"value": "polyak"}}]
    for outcome in ("failed", "new"):  # the same in the middle of a sweep
        values[0.1] = (*values[0.1][:2], outcome)
        sweep(tmp_path / outcome, score, variants=variants)
        for format_ in ("markdown", "latex", "html"):
            text = run("table", "made", "--store", outcome, "--format", format_).stdout
            lost = "1 failed" if outcome == "failed" else "1 missing"
            assert f"undecided: lr=0.1 95.20 (2/3, {lost}); lr=0.01 80.30 (3/3)" in text
            assert "80.30 " not in text.replace("lr=0.01 80.30 (3/3)", "") and "over constant" not in text
            assert "no verdict: constant undecided" in text
            assert not any(mark in text for mark in ("**", "mathbf", "<b>")), "no mark beside an undecided cell"
    values[0.1] = (0.100, 0.104, "failed")
    far = select(sweep(tmp_path / "far", score, variants=variants))
    assert set(far.cells["undecided"]) == {""}, "even a perfect third seed would leave it behind"


def test_ties_are_marked_and_not_told_apart(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda config: [0.9 + 0.001 * config.seed]))
    for verdict in row_verdicts(selection, selection.cells):
        assert not verdict.is_shown and len(verdict.marked) == 2
    assert render(selection, "latex").count(r"\mathbf") == 4 and render(selection, "html").count("<b>") == 4


def test_a_side_of_which_more_seeds_diverged_is_not_shown_to_be_better(tmp_path: Path) -> None:
    """Two of five Polyak seeds are left, five points above: best and marked is the one without a diverged seed."""

    def score(config: TrialConfig) -> list[float] | str:
        if config.scheduler == "polyak" and config.seed > 1:
            return "diverged"
        return [(0.95 if config.scheduler == "polyak" else 0.90) + 0.001 * config.seed]

    variants = [{"scheduler": {"value": "constant"}, "lr": {"value": 0.1}}, {"scheduler": {"value": "polyak"}}]
    selection = select(sweep(tmp_path, score, variants=variants, seeds=5))
    for verdict in row_verdicts(selection, selection.cells):
        assert (verdict.best, verdict.is_shown, len(verdict.marked)) == ("constant", False, 2)
    polyak, constant = (
        selection.cells[selection.cells["scheduler"] == name].iloc[0] for name in ("polyak", "constant")
    )
    assert selection.over_all(polyak, [constant]).p_above == 1 == selection.difference([polyak], [constant]).p_above
    assert selection.over_all(constant, [polyak]).p_below == 1


def test_what_is_said_of_several_rivals_does_not_depend_on_their_order(tmp_path: Path) -> None:
    """All seeds of Polyak and of one of two rivals have diverged."""

    def score(config: TrialConfig) -> list[float] | str:
        return [0.9 + 0.001 * config.seed] if config.scheduler == "constant" else "diverged"

    variants = [
        {"scheduler": {"value": "constant"}, "lr": {"value": 0.1}},
        {"scheduler": {"value": "cosine"}, "lr": {"value": 0.1}},
        {"scheduler": {"value": "polyak"}},
    ]
    cells = {cell["scheduler"]: cell for cell in select(sweep(tmp_path, score, variants=variants, seeds=8)).cells[
        lambda frame: frame["rho"] == 0.1].to_dict("records")}  # fmt: skip
    selection = select(sweep(tmp_path / "again", score, variants=variants, seeds=8))
    found = [selection.over_all(cells["polyak"], [cells[name] for name in names])
             for names in (("constant", "cosine"), ("cosine", "constant"))]  # fmt: skip
    assert found[0] == pytest.approx(found[1], nan_ok=True) and found[0].p_below < 0.01 < found[0].p_above


def test_candidates_without_spread_do_not_hide_a_difference(tmp_path: Path) -> None:
    """A hopeless candidate at chance in every seed, as at a tiny step size, on both sides."""
    chance, good, better = Sample(0.1, 0.0, 3), Sample(0.8, 0.01, 3), Sample(0.95, 0.01, 3)
    found = difference([[better, chance]], [[good, chance]])
    assert found.p < 0.05 and found.is_above and found.low > 0
    assert difference([[chance]], [[chance]]).reason == "no spread"


def test_the_step_size_that_fails_is_told_with_its_own_radius(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float]:
        ahead = {0.1: 0.0, 0.01: 0.1 if config.rho == 0.4 else 0.0, 0.001: -0.2}[config.lr or 0.1]
        return [0.8 + ahead + (0.001, 0.0, -0.0007)[config.seed] * (1 + (config.lr or 0))]

    found = compare(sweep(tmp_path, score, **SMALL), PUBLISHED)
    (claim,) = [one for one in found.claims if one.claim == STEP_SIZE and one.reading == "top-1"
                and one.where == "usam resnet20 cifar10 wd 0.0005"]  # fmt: skip
    assert claim.verdict == FAILS and claim.found.estimate == pytest.approx(-0.1, abs=0.001), claim.detail


def test_stability_and_heat_map_have_no_mean_where_a_candidate_lacks_a_seed(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        lead = config.lr_min == 0.001
        return "failed" if lead and config.seed == 2 else [(0.95 if lead else 0.8) + 0.001 * config.seed]

    variants = [{"scheduler": {"value": "cosine"}, "lr": {"values": [0.1, 1.0]}, "lr_min": {"values": [0.001, 0.01]}}]
    selection = select(sweep(tmp_path, score, variants=variants, tuned=["lr", "lr_min"]))
    drawn_ = {one.name: one.figure for one in figures(selection)}
    (figure,) = [figure for name, figure in drawn_.items() if name.startswith("stability-lr-")]
    assert "4 of 4 points undecided" in figure.get_suptitle().replace("\n", " ")
    assert all(np.isnan(line.get_ydata()).all() for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 2)


def test_a_stalled_trial_is_counted_wherever_it_is_averaged(run: Run, tmp_path: Path) -> None:
    """The paper's cap times a thousand on the digits: gamma = 0 from the second epoch on, and the gradient is not."""
    settings = {"rho": 0.1, "gamma_b": 1000, "weight_decay": 5e-4, "batch_size": 64, "epochs": 3}
    spec = {
        "name": "stall", "metric": {"name": "test/top1", "goal": "maximize"}, "seeds": 1,
        "parameters": {key: {"value": value} for key, value in (
            ("task", "digits"), ("model", "mlp"), ("optimizer", "usam"), ("scheduler", "polyak"), *settings.items())},
    }  # fmt: skip
    (tmp_path / "stall.yaml").write_text(json.dumps(spec))
    train = [
        "task=digits",
        "model=mlp",
        "optimizer=usam",
        "scheduler=polyak",
        *(f"{k}={v}" for k, v in settings.items()),
    ]
    assert run("train", *train, "--store", "store", "--wandb", "disabled").returncode == 0
    store = Store(str(tmp_path / "store"))
    store.write_sweep(SweepSpec.load(tmp_path / "stall.yaml"))
    (trial,) = store.launched("stall").trials
    record = store.record(trial.trial_id)
    assert record is not None and record["outcome"] == "finished" and record["stalled"] is True
    assert record["notes"] == ["stalled: gamma = 0 in every step of the last epoch"]
    last = store.history(trial.trial_id)[-1]
    assert last["gamma/zero_share"] == 1 and last["grad_norm/x"] > 1
    status = run("status", "stall", "--store", "store")
    assert "1 finished trials are stalled" in status.stdout and "stalled" in status.stdout.splitlines()[2]
    assert json.loads(run("status", "stall", "--store", "store", "--json").stdout)["stalled"] == 1
    assert "(1/1, 1 stalled)" in run("table", "stall", "--store", "store").stdout
    assert ",1," in run("table", "stall", "--store", "store", "--format", "csv").stdout.splitlines()[1]
    run("report", "stall", "--store", "store", "--out", "r.html")
    assert "1 finished trials are stalled" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_the_papers_sweep_holds_no_copies(run: Run) -> None:
    planned = json.loads(run("plan", str(ROOT / "sweeps" / "specs" / "paper-cifar.yaml"), "--json").stdout)
    assert (len(planned["cells"]), len(planned["trials"])) == (192, 1152)
    cosine = [one["config"] for one in planned["trials"] if one["config"]["scheduler"] == "cosine"]
    assert all(one["lr_min"] < one["lr"] for one in cosine)
    budgets = {
        scheduler: len({json.dumps([one["config"].get("lr"), one["config"].get("lr_min")]) for one in planned["trials"]
                        if one["config"]["scheduler"] == scheduler})
        for scheduler in ("constant", "cosine", "polyak")
    }  # fmt: skip
    assert budgets == {"constant": 3, "cosine": 2, "polyak": 1}


# What an attack found, each with the right answer.


def test_seeds_that_were_stopped_early_are_not_diverged(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        return [0.9 + 0.001 * config.seed] if config.scheduler == "polyak" else "failed"

    variants = [{"scheduler": {"value": "constant"}, "lr": {"value": 0.1}}, {"scheduler": {"value": "polyak"}}]
    pulled = sweep(tmp_path, score, variants=variants, seeds=10)
    stopped = pulled.runs["outcome"].replace("failed", "stopped")
    selection = select(replace(pulled, runs=pulled.runs.assign(outcome=stopped)))
    for verdict in row_verdicts(selection, selection.cells):
        assert not verdict.is_shown and verdict.difference.reason == "a cell has no finished seed"
        assert "nan" not in verdict.text(["rho"], "test/top1")


def test_runs_that_were_never_planned_are_not_missing(tmp_path: Path) -> None:
    """Five seeds of one step size, three of another, all finished."""
    variants = [
        {"scheduler": {"value": "constant"}, "lr": {"value": 0.1}, "seed": {"values": [0, 1, 2, 3, 4]}},
        {"scheduler": {"value": "constant"}, "lr": {"value": 0.01}, "seed": {"values": [0, 1, 2]}},
    ]
    text = {key: value for key, value in SPEC.items() if key != "seeds"}
    spec = SweepSpec.parse(json.dumps({**text, "variants": variants}), "unequal.yaml")
    store = Store(str(tmp_path))
    store.write_sweep(spec)
    for trial in spec.trials:
        rows = [{**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": e, "step": e, "partial": False,
                 "test/top1": trial.value("lr") + 0.001 * trial.seed} for e in (1, 2, 3)]  # fmt: skip
        store.write_history(trial.trial_id, rows)
        store.write_record(trial.trial_id, {"outcome": "finished", "width": 1, "epoch": 3, "seconds": 1.0})
    cells = select(pull(spec.name, store=store, cache=tmp_path / "cache")).cells
    assert set(cells["undecided"]) == {""} and set(cells["n"]) == {5} and set(cells["budget"]) == {8}


def test_what_another_set_chose_pays_nothing_for_the_choice(tmp_path: Path) -> None:
    """A candidate that the held-out images rejected has no say in the verdict on the test images."""

    def score(config: TrialConfig) -> list[float]:
        return [{0.1: 0.60, 0.01: 0.95, 1.0: 0.5, None: 0.85}[config.lr] + 0.002 * config.seed]

    pulled = sweep(tmp_path, score)
    chosen = pulled.runs["lr"].map({0.1: 0.9}).astype("double[pyarrow]").fillna(0.5)
    runs = pulled.runs.assign(**{"best/val/top1": chosen, "last/val/top1": chosen, "val_fraction": 0.1})
    protocol = replace(pulled.protocol, metric="val/top1")
    selection = select(replace(pulled, runs=runs, protocol=protocol), metric="test/top1")
    for verdict in row_verdicts(selection, selection.cells):
        assert (verdict.best, verdict.is_shown, len(verdict.marked)) == ("polyak", True, 1)


def test_the_safeguard_is_counted_over_every_candidate(tmp_path: Path) -> None:
    capped = {"scheduler": {"value": "polyak"}, "gamma_b": {"values": [1.0, 10.0, 100.0]}}
    variants = [*SMALL["variants"][:2], capped]
    pulled = sweep(tmp_path, lambda c: [0.9 - 0.1 * (c.gamma_b != 1.0)], **{**SMALL, "variants": variants,
                   "tuned": ["lr", "lr_min", "gamma_b"]})  # fmt: skip
    calm = pulled.runs["gamma_b"].eq(1.0).fillna(False)
    shares = replace(pulled, runs=pulled.runs.assign(zero_share=np.where(calm, 0.01, 0.6)))
    (claim,) = [one for one in compare(shares, PUBLISHED).claims if one.claim == SAFEGUARD and one.where == "usam"]
    assert claim.verdict == FAILS and claim.detail.startswith("24 of 36 trials")


def test_a_sweep_without_a_finished_tuned_trial_is_drawn_and_reported(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: [0.9] if c.scheduler == "polyak" else "failed"))
    assert {one.name.partition("-")[0] for one in figures(selection)} >= {"robustness", "stability"}


def test_a_search_whose_ranges_allow_a_cosine_that_rises_is_refused_before_it_starts() -> None:
    ranges = {"scheduler": {"value": "cosine"}, "lr": {"min": 0.3, "max": 1.0}, "lr_min": {"min": 0.0, "max": 0.5}}
    search = {**SPEC, "method": "bayes", "run_cap": 9, "variants": [ranges], "tuned": ["lr", "lr_min"]}
    with pytest.raises(UserError, match=r"lr_min: 0\.49\d* is not below lr = 0\.30"):
        SweepSpec.parse(json.dumps(search), "bayes.yaml")
    apart = {**ranges, "lr_min": {"min": 0.0, "max": 0.2}}
    assert SweepSpec.parse(json.dumps({**search, "variants": [apart]}), "bayes.yaml").corners


def test_values_without_spread_have_no_interval() -> None:
    assert all(map(math.isnan, mean_interval(Sample.of([1.0, 1.0, 1.0]))))
    assert difference([[Sample(math.inf, math.nan, 3)]], [[Sample(1.0, 0.1, 3)]]).reason == "a value is not finite"


def test_a_gaussian_matrix_needs_no_condition_and_has_none() -> None:
    assert ridge(3, 5, 10.0, 0.1, consistent=False, problem_seed=0, matrix="gaussian").d == 5
    assert ridge(3, 1, 10.0, 0.0, consistent=True, problem_seed=0, matrix="gaussian").d == 1
    with pytest.raises(UserError, match=r"task_options.condition: 3 is of matrix 'conditioned'; leave it out"):
        ridge(9, 5, 3.0, 0.0, consistent=True, problem_seed=0, matrix="gaussian")
