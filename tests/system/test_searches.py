"""Random, bayes and early termination on a real Ray: the same after a kill, decisions kept, stopped trials shown."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.store.store import Store
from tests.support.processes import descendants, is_alive, kill_group
from tests.support.results import histories, records
from tests.support.waiting import wait_for

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]
SpecFile = Callable[..., Path]

SEARCH: dict[str, Any] = {
    "method": "bayes",
    "metric": {"name": "test/top1", "goal": "maximize"},
    "parameters": {
        "task": {"value": "digits"},
        "model": {"value": "mlp"},
        "optimizer": {"value": "usam"},
        "rho": {"min": 0.01, "max": 0.4},
        "batch_size": {"value": 256},
        "epochs": {"value": 9},
    },
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 0.5}},
        {"scheduler": {"value": "polyak"}},
    ],
    "tuned": ["lr", "rho", "scheduler"],
    "seeds": 2,
    "run_cap": 16,
    "early_terminate": {"type": "hyperband", "min_iter": 2, "eta": 2},
    "launch": {"concurrency": 1, "checkpoint_seconds": 0},
}


@pytest.mark.parametrize("kills", [(25,), pytest.param((9, 40), marks=pytest.mark.long)])
def test_a_bayes_search_that_was_killed_ends_like_one_that_was_not(
    run: Run, run_here: Run, launch_here: Run, start: Start, spec_file: SpecFile, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    """Points, stops and histories, with early termination, one stack at a time; and it ends where it should.

    The other one runs without Ray.
    """
    spec = spec_file(**SEARCH)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    planned = json.loads(run_here("plan", spec, "--store", whole, "--json").stdout)
    assert planned["counts"]["trials"] == 0
    answer = launch_here(spec, "--store", whole)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    outcomes = [record["outcome"] for record in records(whole).values()]
    assert len(outcomes) == 16 and {"stopped", "finished"} <= set(outcomes), outcomes
    assert f"{outcomes.count('stopped')} stopped" in answer.stdout

    for epochs in kills:
        process = start("launch", spec, "--store", parts)
        wait_for(lambda epochs=epochs: sum(r["epoch"] for r in records(parts).values()) >= epochs, 90, process)
        children = descendants(process.pid)
        kill_group(process)
        wait_for(lambda children=children: not any(map(is_alive, children)), 20)
    continued = launch_here if len(kills) == 1 else partial(run, "launch")
    answer = continued(spec, "--store", parts)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert histories(parts) == histories(whole)
    found = {t: (r["outcome"], r["epoch"]) for t, r in records(parts).items()}
    assert found == {t: (r["outcome"], r["epoch"]) for t, r in records(whole).items()}
    points = [Store(str(place)).search.suggestions("small") for place in (parts, whole)]
    assert points[0] == points[1] and len(points[0]) == 8

    stopped = [t for t, r in records(parts).items() if r["outcome"] == "stopped"]
    assert {records(parts)[t]["epoch"] for t in stopped} <= {2, 4, 8}
    table = run_here("table", "small", "--store", parts).stdout
    assert run_here("table", "small", "--store", whole).stdout == table
    assert "(2/2)" in table or " +- " in table, table
    status = json.loads(run_here("status", "small", "--store", parts, "--json").stdout)
    assert status["counts"]["stopped"] == len(stopped) and status["proposals_left"] == 0
    again = run_here("launch", spec, "--store", parts)
    assert again.returncode == 0 and "nothing to start, all 16 trials have ended" in again.stdout

    longer = spec_file(**{**SEARCH, "run_cap": 20})
    assert launch_here(longer, "--store", parts).returncode == 0
    assert len(records(parts)) == 20 and Store(str(parts)).search.suggestions("small")[:8] == points[0]


@pytest.mark.parametrize("on_ray", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_random_sweep_runs_its_draws_and_stops_starting_at_its_target(
    run: Run, run_here: Run, launch_here: Run, spec_file: SpecFile, tmp_path: Path, on_ray: bool
) -> None:
    launch = partial(run, "launch") if on_ray else launch_here
    random = {
        **SEARCH,
        "method": "random",
        "early_terminate": None,
        "run_cap": 8,
        "launch": {"stack": 2, "concurrency": 1},
    }
    random = {key: value for key, value in random.items() if value is not None}
    spec, store = spec_file(**random), tmp_path / "store"
    planned = json.loads(run_here("plan", spec, "--store", store, "--json").stdout)
    assert planned["counts"]["new"] == 8
    easy = {**random, "metric": {"name": "test/top1", "goal": "maximize", "target": 0.05}}
    answer = launch(spec_file(**easy), "--store", store)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "has reached its target 0.05; 6 trials are not started" in answer.stdout
    assert len(records(store)) == 2
    answer = launch(spec_file(**random), "--store", store)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert set(records(store)) == {trial["trial_id"] for trial in planned["trials"]}
    assert {r["outcome"] for r in records(store).values()} == {"finished"}
    assert all(len(r["sessions"]) == 1 for r in records(store).values())


def test_a_point_that_is_drawn_again_is_run_once_and_counted_once(
    run_here: Run, launch_here: Run, spec_file: SpecFile, tmp_path: Path
) -> None:
    """Ten draws of six points, each with two seeds: plan, launch, status, table, and an extension."""
    store = tmp_path / "store"
    spec = spec_file(method="random", run_cap=20)
    planned = run_here("plan", spec, "--store", store).stdout
    counted = re.search(r"10 draws, (\d) different points: a repeated one is the same trial and is run once", planned)
    assert counted is not None, planned
    trials = 2 * int(counted[1])
    answer = launch_here(spec, "--store", store)
    assert answer.returncode == 0 and f"10 draws, {counted[1]} different points" in answer.stdout, answer.stdout
    assert len(records(store)) == trials
    assert json.loads(run_here("status", "small", "--store", store, "--json").stdout)["counts"]["finished"] == trials
    table = run_here("table", "small", "--store", store).stdout
    assert "(2/2)" in table or " +- " in table, table
    assert f"nothing to start, all {trials} trials have ended" in launch_here(spec, "--store", store).stdout
    more = json.loads(run_here("plan", spec_file(method="random", run_cap=200), "--store", store, "--json").stdout)
    assert more["extension"] == {"new": 12 - trials, "gone": 0, "unchanged": trials, "changed": []}
