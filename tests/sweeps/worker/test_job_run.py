"""The stacks of a job: in order, or in turn if results decide; parts that cannot be stacked under every method."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.job import RowProgress
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.job_run import JobRun
from tests.support.lab import lab as lab
from tests.support.project import TINY
from tests.support.results import records
from tests.support.stack_jobs import job

Run = Callable[..., subprocess.CompletedProcess[str]]
SEARCHES = {
    "grid": {},
    "bayes": {"method": "bayes", "run_cap": 4},
    "hyperband": {"early_terminate": {"type": "hyperband", "min_iter": 1, "eta": 2}},
    "bayes and hyperband": {
        "method": "bayes", "run_cap": 4, "early_terminate": {"type": "hyperband", "min_iter": 1, "eta": 2},
    },
}  # fmt: skip


def progress(run: JobRun) -> list[tuple[str, int]]:
    rows: list[RowProgress] = []
    while not run.is_over:
        rows += run.advance()
    return [(row.trial_id, row.epoch) for row in rows]


@pytest.mark.parametrize("early", [False, True])
def test_stacks_are_trained_in_order_or_in_turn_if_their_point_may_be_ended(tmp_path: Path, early: bool) -> None:
    jobs = [job(str(tmp_path), {"seed": seed, "epochs": 2}, width=1, early=early, sweeps=("s",)) for seed in (0, 1)]
    run = JobRun(jobs)
    trained = progress(run)
    first, second = dict.fromkeys(trial_id for trial_id, _ in trained)
    in_order = [(first, 1), (first, 2), (second, 1), (second, 2)]
    assert trained == ([in_order[0], in_order[2], in_order[1], in_order[3]] if early else in_order)
    assert {record["outcome"] for record in records(tmp_path).values()} == {"finished"}


def test_a_job_that_is_closed_gives_up_all_its_stacks(tmp_path: Path) -> None:
    run = JobRun([job(str(tmp_path), {"seed": seed}, width=1, early=True, sweeps=("s",)) for seed in (0, 1)])
    trained = [row for _ in range(2) for row in run.advance()]
    run.close()
    states = [Store(str(tmp_path)).state(row.trial_id) for row in trained]
    assert [(state.state, state.epoch) for state in states] == [("interrupted", 1)] * 2


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(("model", "width"), [("steps:Dropout", 2), ("steps:Noisy", 1)])
def test_dropout_is_trained_by_every_method(
    lab: Path, launch_here: Run, run_here: Run, search: str, model: str, width: int
) -> None:
    values = {**TINY, "model": model}
    del values["rho"]
    spec = {
        "name": "dropped",
        "metric": {"name": "test/loss", "goal": "minimize"},
        "parameters": {key: {"value": value} for key, value in values.items()},
        "seeds": 2,
        **SEARCHES[search],
    }
    bayes = "bayes" in search
    spec["parameters"]["rho"] = {"min": 0.01, "max": 0.2} if bayes else {"values": [0.05, 0.1, 0.2]}
    if search == "grid":
        spec["launch"] = {"stack": 2}
    (lab / "dropped.yaml").write_text(json.dumps(spec))
    answer = launch_here("dropped.yaml", "--store", "store")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    warned = "warning: model 'steps:Noisy' cannot be stacked" in answer.stderr
    assert warned == (width == 1)
    kept = records(lab / "store").values()
    assert len(kept) == (4 if bayes else 6)
    assert {record["width"] for record in kept} == {width}
    assert {record["outcome"] for record in kept} <= {"finished", "stopped"}
    if search == "hyperband":
        stopped = [record["epoch"] for record in kept if record["outcome"] == "stopped"]
        assert stopped and all(epoch < TINY["epochs"] for epoch in stopped), "ended at a rung, whatever the width"


def test_a_stack_of_one_may_be_asked_for_under_a_search(lab: Path, run_here: Run) -> None:
    spec = {"method": "random", "run_cap": 4, "seeds": 2, "parameters": {k: {"value": v} for k, v in TINY.items()}}
    spec["parameters"]["rho"] = {"min": 0.01, "max": 0.2}
    early = {
        "early_terminate": {"type": "hyperband", "min_iter": 1},
        "metric": {"name": "test/top1", "goal": "maximize"},
    }
    for stack, code in ((1, 0), (2, 0), (4, 2)):
        (lab / "one.yaml").write_text(json.dumps({**spec, **early, "launch": {"stack": stack}}))
        answer = run_here("plan", "one.yaml", "--store", "store")
        assert answer.returncode == code, answer.stdout + answer.stderr
        if stack == 1:
            assert "4 stacks" in answer.stdout
