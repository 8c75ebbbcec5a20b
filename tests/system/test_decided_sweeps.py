"""Sweeps that tune, report and replicate: by grid, draws and bayes, after kills, extended, and by `replicate`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.replication import decisions
from polysweep.sweeps.store.store import Store
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, as_runs
from tests.support.processes import descendants, is_alive, kill_group
from tests.support.results import histories, records
from tests.support.waiting import wait_for

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]

TUNED: dict[str, Any] = {
    "metric": {"name": "test/top1", "goal": "maximize"},
    "parameters": {
        "task": {"value": "digits"},
        "model": {"value": "mlp"},
        "optimizer": {"value": "usam"},
        "rho": {"values": [0.1, 0.2]},
        "batch_size": {"value": 256},
        "epochs": {"value": 2},
    },
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"values": [0.001, 0.1]}},
        {"scheduler": {"value": "polyak"}},
    ],
    "tuned": ["lr"],
    "protocol": {"tune_on": [0, 1], "report_on": [2, 3]},
    "replicate": {"compare": "scheduler", "looks": [2, 3, 5]},
    "launch": {"stack": 4, "checkpoint_seconds": 0},
}
NAME = "small"
VAL = {"name": "val/top1", "goal": "maximize"}


def spec_file(folder: Path, **changes: Any) -> Path:
    fields = {"name": NAME, **TUNED, **changes}
    path = folder / f"{NAME}.yaml"
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}, indent=1))
    return path


def made_decisions(store: Path, name: str = NAME) -> list[Any]:
    """All decisions without their times."""
    made = Store(str(store)).search.decisions(name)
    return [replace(one, at="") for one in (*made.choices.values(), *made.looks)]


def test_a_launch_tunes_reports_and_replicates_by_itself(
    run_here: Run, launch_here: Run, wandb_server: Wandb, tmp_path: Path
) -> None:
    spec, store = spec_file(tmp_path), tmp_path / "store"
    planned = run_here("plan", spec, "--store", store)
    for words in (
        "protocol: tuned on seeds 0, 1, reported on seeds 2, 3; 0 of 4 cells have chosen",
        "then the chosen candidate of each of 4 cells runs on 2 reporting seeds: 8 trials",
        "replicate: scheduler by test/top1; comparisons: 2; level 0.05 over all of them and all looks, at n = 2",
        "look 1 at 2 seeds; its power by the stds so far:",
    ):
        assert words in planned.stdout, planned.stdout
    answer = launch_here(spec, "--store", store)
    assert answer.returncode == 0 and "protocol: " in answer.stdout, answer.stdout + answer.stderr
    assert "look 1 of 3, 2 seeds, each test at" in answer.stdout
    sweep = Store(str(store)).launched("small")
    added = [trial for trial in sweep.trials if trial.is_added]
    assert {trial.seed for trial in sweep.trials if not trial.is_added} == {0, 1}
    assert {trial.seed for trial in added} >= {2, 3} and not {0, 1} & {trial.seed for trial in added}
    assert sweep.cell_fields == ("rho", "scheduler")

    chosen = select(pull("small", store=str(store), cache=tmp_path / "cache"))
    for cell in chosen.cells.to_dict("records"):
        own = [t.trial_id for t in added if t.cell == {"rho": cell["rho"], "scheduler": cell["scheduler"]}]
        values = [max(row["test/top1"] for row in Store(str(store)).history(trial_id)) for trial_id in own]
        assert cell["n"] == cell["seeds"] == len(own)
        assert cell["mean"] == pytest.approx(sum(values) / len(values), rel=1e-15)
        assert cell["candidates"] == (2 if cell["scheduler"] == "constant" else 1)
    table = run_here("table", "small", "--store", store).stdout
    assert "tuned on seeds 0, 1, reported on seeds 2, 3" in table and "decided by replication" in table
    verdicts = decisions(chosen.pulled)
    assert list(verdicts["cells"]) == ["rho=0.1", "rho=0.2"] and set(verdicts["one"]) == {"polyak"}
    wandb_server.load("p", as_runs(Store(str(store)), "small"))
    there = select(pull(f"{ADDRESS}/small", store=str(store), cache=tmp_path / "wandb-cache"))
    columns = ["rho", "scheduler", "selected", "candidates", "seeds", "n", "mean", "std"]
    assert there.cells[columns].to_dict("records") == chosen.cells[columns].to_dict("records"), "as W&B has the runs"
    page = tmp_path / "report.html"
    assert run_here("report", "small", "--store", store, "--out", page).returncode == 0
    text = page.read_text()
    assert text.index("Decided by replication") < text.index('<h2 id="summary">')
    status = run_here("status", "small", "--store", store).stdout
    assert "4 of 4 cells have chosen" in status and "look 1 of 3" in status
    again = run_here("launch", spec, "--store", store, "--wandb", "disabled")
    assert again.returncode == 0 and "nothing to start" in again.stdout and "look 1 of 3" in again.stdout


LONG = [pytest.param(epochs, marks=pytest.mark.long) for epochs in (4, 22)]


@pytest.mark.parametrize("epochs", [14, *LONG])
def test_a_kill_changes_no_decision(launch_here: Run, start: Start, tmp_path: Path, epochs: int) -> None:
    """Killed while it tunes, while it reports, after a look: the same trials, numbers and decisions."""
    spec = spec_file(tmp_path)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert launch_here(spec, "--store", whole).returncode == 0
    process = start("launch", spec, "--store", parts, "--wandb", "disabled")
    wait_for(lambda: sum(r["epoch"] for r in records(parts).values()) >= epochs, 120, process)
    children = descendants(process.pid)
    kill_group(process)
    wait_for(lambda: not any(map(is_alive, children)), 20)
    assert launch_here(spec, "--store", parts).returncode == 0
    assert histories(parts) == histories(whole)
    assert made_decisions(parts) == made_decisions(whole)


def test_retrained_trials_use_what_was_held_out_and_report_their_last_epoch(
    run_here: Run, launch_here: Run, tmp_path: Path
) -> None:
    parameters = {**TUNED["parameters"], "val_fraction": {"value": 0.25}, "rho": {"values": [0.1]}}
    spec = spec_file(tmp_path, **{"metric": VAL, "parameters": parameters,
                        "protocol": {**TUNED["protocol"], "retrain": True}})  # fmt: skip
    store = tmp_path / "store"
    answer = launch_here(spec, "--store", store)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    sweep = Store(str(store)).launched("small")
    added = [trial for trial in sweep.trials if trial.is_added]
    assert added and all(not trial.config.val_fraction for trial in added)
    assert all(trial.config.val_fraction == 0.25 for trial in sweep.trials if not trial.is_added)
    pulled = pull("small", store=str(store), cache=tmp_path / "cache")
    chosen = select(pulled)
    assert (chosen.metric, chosen.epoch, chosen.by, chosen.selected_on) == ("test/top1", "last", "val/top1", "val")
    for cell in chosen.cells.to_dict("records"):
        own = [t.trial_id for t in added if t.cell == {"scheduler": cell["scheduler"]}]
        last = [Store(str(store)).history(trial_id)[-1]["test/top1"] for trial_id in own]
        assert cell["mean"] == pytest.approx(sum(last) / len(last), rel=1e-15) and not cell["undecided"]
    assert "retrained on train + val, last epoch" in run_here("table", "small", "--store", store).stdout
    for option, words in (
        (("--epoch", "best"), "retrained runs do not measure 'val/top1'"),
        (("--metric", "val/top1"), "is not measured by retrained runs"),
        (("--select-by", "test/loss"), "the sweep's protocol has chosen by 'val/top1'"),
    ):
        refused = run_here("table", "small", "--store", store, *option)
        assert refused.returncode == 2 and words in refused.stderr, refused.stderr


def test_bayes_with_early_termination_reports_what_it_has_chosen(launch_here: Run, tmp_path: Path) -> None:
    variants = [
        {"scheduler": {"value": "constant"}, "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 0.5}}
    ]
    fields = {"method": "bayes", "replicate": None, "run_cap": 20, "variants": variants, "tuned": ["lr", "rho"],
              "early_terminate": {"type": "hyperband", "min_iter": 1, "eta": 2}, "launch": {"checkpoint_seconds": 0},
              "parameters": {**TUNED["parameters"], "rho": {"min": 0.01, "max": 0.4}, "epochs": {"value": 4},
                             "batch_size": {"value": 32}},
             }  # fmt: skip
    spec, store = spec_file(tmp_path, **fields), tmp_path / "store"
    answer = launch_here(spec, "--store", store)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    sweep = Store(str(store)).launched("small")
    tuning = [t.trial_id for t in sweep.trials if not t.is_added]
    added = [t for t in sweep.trials if t.is_added]
    outcomes = records(store)
    assert len(tuning) == 20 and "stopped" in {outcomes[i]["outcome"] for i in tuning}
    assert [t.seed for t in added] == [2, 3], "one cell, as all that is searched is tuned"
    assert {(outcomes[t.trial_id]["outcome"], outcomes[t.trial_id]["epoch"]) for t in added} == {("finished", 4)}
    chosen = select(pull("small", store=str(store), cache=tmp_path / "cache"))
    assert chosen.cells["n"].tolist() == [2] and chosen.cells["candidates"].tolist() == [10]


def test_every_cell_gets_the_same_number_of_candidates(run_here: Run, launch_here: Run, tmp_path: Path) -> None:
    variants = [
        {"scheduler": {"value": "constant"}, "lr": {"distribution": "log_uniform_values", "min": 1e-3, "max": 0.5}},
        {"scheduler": {"value": "polyak"}, "gamma_b": {"min": 0.5, "max": 2.0}},
    ]
    fields: dict[str, Any] = {"method": "random", "replicate": None, "variants": variants, "tuned": ["lr", "gamma_b"],
              "protocol": {**TUNED["protocol"], "budget": 3}}  # fmt: skip
    spec, store = spec_file(tmp_path, **fields), tmp_path / "store"
    assert launch_here(spec, "--store", store).returncode == 0
    chosen = select(pull("small", store=str(store), cache=tmp_path / "cache"))
    assert chosen.cells["candidates"].tolist() == [3] * 4 and chosen.cells["n"].tolist() == [2] * 4
    runs = chosen.pulled.runs.copy()
    runs.loc[~runs["is_added"], "outcome"] = "failed"  # lost after the choice, which has been made and reported
    later = select(replace(chosen.pulled, runs=runs))
    assert later.cells[["n", "mean"]].equals(chosen.cells[["n", "mean"]]) and not any(later.cells["undecided"])
    tried = chosen.candidates[chosen.candidates["scheduler"] == "constant"]
    assert tried.groupby("rho")["lr"].apply(sorted).map(tuple).nunique() == 1, "the same draws at each radius"
    more = spec_file(tmp_path, **{**fields, "protocol": {**fields["protocol"], "budget": 4}})
    planned = run_here("plan", more, "--store", store).stdout
    assert "8 trials are new in the spec" in planned, planned
    assert launch_here(more, "--store", store, "--extend").returncode == 0
    chosen = select(pull("small", store=str(store), cache=tmp_path / "cache"))
    assert chosen.cells["candidates"].tolist() == [4] * 4


def test_replicate_decides_a_sweep_that_is_there(
    run_here: Run, launch_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seeds have chosen: others report. What is asked for wrongly is one line, and starts nothing."""
    spec, store = spec_file(tmp_path, protocol=None, replicate=None, seeds=2), tmp_path / "store"
    assert launch_here(spec, "--store", store).returncode == 0
    before = records(store)
    for arguments, words in (
        ((), "--compare: missing"),
        (("--looks", "2,3"), "--compare: missing"),
        (("--compare", "scheduler"), "cell rho=0.1 scheduler=constant has 2 candidates"),
        (("--compare", "scheduler", "--looks", "3,x"), "--looks: '3,x'; expected whole numbers with commas"),
        (("--compare", "scheduler", "--report-on", "1,2"), "also in tune_on: 1;"),
        (("--compare", "scheduler=polyak,constnat", "--report-on", "2,3"), "no cell has scheduler='constnat'"),
        (("--compare", "scheduler", "--report-on", "2,3", "--margin", "0.5"), "needs a unit"),
    ):
        refused = run_here("replicate", "small", "--store", store, "--wandb", "disabled", *arguments)
        assert refused.returncode == 2 and words in refused.stderr, refused.stderr
        assert refused.stderr.count("\n") == 1 and records(store) == before
    asked = ("--compare", "scheduler", "--report-on", "2,3", "--looks", "2,3", "--margin", "50 points")
    dry = run_here("replicate", "small", "--store", store, *asked, "--dry-run")
    assert dry.returncode == 0 and "8 new" in dry.stdout and records(store) == before, dry.stdout + dry.stderr

    from polysweep.sweeps.scheduling import driver, ray_environment
    from tests.support.without_ray import one_by_one

    monkeypatch.setattr(driver, "launch", one_by_one)
    monkeypatch.setattr(ray_environment, "prepare", lambda *_, **__: None)
    answer = run_here("replicate", "small", "--store", store, "--wandb", "disabled", *asked)
    assert answer.returncode == 0 and "look 1 of 2, 2 seeds" in answer.stdout, answer.stdout + answer.stderr
    sweep = Store(str(store)).launched("small")
    assert {trial.seed for trial in sweep.trials if trial.is_added} >= {2, 3}
    assert {i: r for i, r in records(store).items() if i in before} == before, "nothing is run twice"
    again = run_here("replicate", "small", "--store", store, "--wandb", "disabled")
    assert again.returncode == 0 and "nothing to start" in again.stdout
    other = run_here("replicate", "small", "--store", store, "--wandb", "disabled", "--compare", "rho")
    assert other.returncode == 2 and "has a 'replicate' of its own" in other.stderr


def test_what_has_been_looked_at_keeps_its_plan(run_here: Run, launch_here: Run, tmp_path: Path) -> None:
    spec, store = spec_file(tmp_path), tmp_path / "store"
    assert launch_here(spec, "--store", store).returncode == 0
    more = {"scheduler": {"value": "constant"}, "lr": {"values": [0.001, 0.1, 0.2]}}
    for changes, words in (
        ({"replicate": {**TUNED["replicate"], "looks": [2, 3, 10]}}, "looks: [2, 3, 5] -> [2, 3, 10]"),
        ({"replicate": {**TUNED["replicate"], "level": 0.1}}, "level: 0.05 -> 0.1"),
        ({"replicate": {**TUNED["replicate"], "margin": "3 points"}}, "margin: None -> 3 points"),
        ({"parameters": {**TUNED["parameters"], "rho": {"values": [0.1, 0.2, 0.3]}}}, "comparisons: 2 -> 3"),
        ({"variants": [more, TUNED["variants"][1]]}, "cells that are compared, their candidates, or the seeds that"),
        ({"protocol": {"tune_on": [0, 5], "report_on": [2, 3]}}, "cells that are compared, their candidates, or the"),
        ({"protocol": {"tune_on": [0, 1], "report_on": [4, 5]}}, "first seeds: [2, 3] -> [4, 5]"),
        ({"metric": {"name": "test/loss", "goal": "minimize"}}, "metric: test/top1 -> test/loss"),
        ({"parameters": {**TUNED["parameters"], "rho": {"values": [0.1, 0.3]}}}, "cells that are compared"),
        ({"replicate": None}, "looks: [2, 3, 5] -> nothing"),
        ({"replicate": {**TUNED["replicate"], "max_trials": 21}}, "replicate.max_trials: 21, but"),
    ):
        for command in (("plan",), ("launch", "--wandb", "disabled", "--extend")):
            refused = run_here(command[0], spec_file(tmp_path, **changes), "--store", store, *command[1:])
            assert refused.returncode == 2 and words in refused.stderr, refused.stderr
    assert run_here("plan", spec_file(tmp_path), "--store", store).returncode == 0


def test_what_is_asked_for_later_is_told_apart(run_here: Run, launch_here: Run, tmp_path: Path) -> None:
    """`max_trials` may be raised, other reporting seeds need --extend, and damage is named by `table` too."""
    spec, store = spec_file(tmp_path, replicate={**TUNED["replicate"], "max_trials": 20}), tmp_path / "store"
    assert launch_here(spec, "--store", store).returncode == 0
    planned = run_here("plan", spec, "--store", store).stdout
    assert "look 2 is not made: it needs 24 trials in all, and max_trials is 20" in planned, planned
    raised = ("replicate", "small", "--store", store, "--wandb", "disabled", "--max-trials", "30", "--dry-run")
    dry = run_here(*raised)
    assert dry.returncode == 0 and "4 new" in dry.stdout and "--extend" not in dry.stdout, dry.stdout + dry.stderr

    plain = spec_file(tmp_path, replicate=None)
    other = tmp_path / "other"
    assert launch_here(plain, "--store", other).returncode == 0
    swapped = spec_file(tmp_path, replicate=None, protocol={"tune_on": [0, 1], "report_on": [4, 5]})
    refused = run_here("launch", swapped, "--store", other, "--wandb", "disabled")
    assert refused.returncode == 2 and "protocol.report_on: without 2, 3" in refused.stderr

    (store / "sweeps/small/looks/01.json").write_bytes(b"{")
    table = run_here("table", "small", "--store", store)
    assert table.returncode == 0 and "What was decided cannot be read" in table.stderr and "01.json" in table.stderr
