"""Worlds of known truth in a Store: the commands judge as the functions do."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.published.claims import STEP_SIZE
from polysweep.analysis.published.comparison import compare
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.mean_std import row_verdicts
from polysweep.analysis.tables.statistics import FAILS
from polysweep.sweeps.planning.welch import Sample, difference
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from tests.support.made import sweep
from tests.support.project import ROOT
from tests.support.worlds import (
    FIELDS,
    PUBLISHED,
    SMALL,
    World,
    drawn,
    paper,
)

Run = Callable[..., subprocess.CompletedProcess[str]]


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


def test_a_world_in_a_store_is_judged_as_in_memory(run_here: Run, tmp_path: Path) -> None:
    sweep(tmp_path / "store", scores(World(paper), 7), **SMALL)
    answer = run_here("compare", "made", "--published", "cifar", "--store", "store")
    assert answer.returncode == 0, answer.stderr
    memory = {
        (one.claim, one.where): one.difference.p
        for one in compare(drawn(World(paper), np.random.default_rng(7)), PUBLISHED).claims
        if one.reading == "top-1"
        and one.dataset == "cifar10"
        and one.where.startswith("usam resnet20 cifar10 wd 0.0005")
    }
    stored = compare(sweep(tmp_path / "again", scores(World(paper), 7), **SMALL), PUBLISHED)
    found = {(one.claim, one.where): one.difference.p for one in stored.claims if (one.claim, one.where) in memory
             and one.reading == "top-1"}  # fmt: skip
    assert len(found) == 7 and found == pytest.approx(memory)
    assert answer.stdout.count("| holds ") >= 4 and "| fails " not in answer.stdout.partition("| the safeguard")[0]


def test_a_failed_seed_swaps_no_candidate(run_here: Run, tmp_path: Path) -> None:
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
            text = run_here("table", "made", "--store", outcome, "--format", format_).stdout
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
    assert claim.verdict == FAILS and claim.difference.estimate == pytest.approx(-0.1, abs=0.001), claim.detail


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


def test_a_stalled_trial_is_counted_wherever_it_is_averaged(run: Run, run_here: Run, tmp_path: Path) -> None:
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
    status = run_here("status", "stall", "--store", "store")
    assert "1 finished trials are stalled" in status.stdout and "stalled" in status.stdout.splitlines()[2]
    assert json.loads(run_here("status", "stall", "--store", "store", "--json").stdout)["stalled"] == 1
    assert "(1/1, 1 stalled)" in run_here("table", "stall", "--store", "store").stdout
    assert ",1," in run_here("table", "stall", "--store", "store", "--format", "csv").stdout.splitlines()[1]
    run_here("report", "stall", "--store", "store", "--out", "r.html")
    assert "1 finished trials are stalled" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_the_papers_sweep_holds_no_copies(run_here: Run) -> None:
    planned = json.loads(run_here("plan", str(ROOT / "sweeps" / "specs" / "paper-cifar.yaml"), "--json").stdout)
    assert (len(planned["cells"]), len(planned["trials"])) == (192, 1152)
    cosine = [one["config"] for one in planned["trials"] if one["config"]["scheduler"] == "cosine"]
    assert all(one["lr_min"] < one["lr"] for one in cosine)
    budgets = {
        scheduler: len({json.dumps([one["config"].get("lr"), one["config"].get("lr_min")]) for one in planned["trials"]
                        if one["config"]["scheduler"] == scheduler})
        for scheduler in ("constant", "cosine", "polyak")
    }  # fmt: skip
    assert budgets == {"constant": 3, "cosine": 2, "polyak": 1}
