"""Tasks of docs/extending.md that are no images: from spec to report."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from polysweep.analysis.data.pulling import pull
from polysweep.sweeps.store.store import Store
from polysweep.trainer.rehearsal import refusal
from tests.support.lab import DOCS, own
from tests.support.lab import lab as lab
from tests.support.results import records

Run = Callable[..., subprocess.CompletedProcess[str]]
MOST_LINES = 35


def test_breast_cancer_is_tuned_from_spec_to_report_in_few_lines(lab: Path, launch_here: Run, run_here: Run) -> None:
    (spec,) = re.findall(r"```yaml\n(name: cancer.*?)```", DOCS, re.DOTALL)
    assert len(spec.splitlines()) + len((lab / "my_lab" / "cancer.py").read_text().splitlines()) + 3 <= MOST_LINES
    shorter = spec.replace("run_cap: 24", "run_cap: 12").replace("epochs: {value: 20}", "epochs: {value: 6}")
    (lab / "cancer.yaml").write_text(shorter)
    answer = launch_here("cancer.yaml", "--store", "store")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    kept = records(lab / "store").values()
    assert [record["outcome"] for record in kept] == ["finished"] * 12
    assert {record["width"] for record in kept} == {2}, "dropout is stacked"
    runs = pull("cancer", store=Store(str(lab / "store")), cache=lab / "cache").runs
    assert runs["best/test/top1"].max() > 0.93
    assert run_here("table", "cancer", "--store", "store").returncode == 0
    answer = run_here("report", "cancer", "--store", "store", "--out", "cancer.html")
    assert answer.returncode == 0 and (lab / "cancer.html").stat().st_size > 10_000, answer.stderr


def test_a_metric_of_ones_own_selects_and_stands_in_tables(lab: Path, launch_here: Run, run_here: Run) -> None:
    values = {
        "task": "my_lab.counts:counts", "model": "linear", "optimizer": "usam", "scheduler": "constant", "rho": 0.01,
        "epochs": 3, "batch_size": 50, "val_fraction": 0.2,
    }  # fmt: skip
    spec = {
        "name": "events",
        "metric": {"name": "val/deviance", "goal": "minimize", "target": 0.01},
        "parameters": {**{key: {"value": value} for key, value in values.items()}, "lr": {"values": [0.1, 1e-4]}},
        "tuned": ["lr"],
        "seeds": 2,
    }
    (lab / "events.yaml").write_text(json.dumps(spec))
    answer = launch_here("events.yaml", "--store", "store")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert refusal(own(task="my_lab.counts:counts", model="linear", lr=0.1, scheduler="constant")) == ""
    table = run_here("table", "events", "--store", "store").stdout
    assert "val/deviance at the best epoch" in table and "lr=0.1" in table
    by_loss = run_here("table", "events", "--store", "store", "--metric", "test/loss", "--select-by", "val/loss")
    assert by_loss.returncode == 0 and "+-" in by_loss.stdout, by_loss.stderr
    runs = pull("events", store=Store(str(lab / "store")), cache=lab / "cache").runs
    assert runs["best/test/deviance"].notna().all() and runs["best/test/top1"].isna().all()
    record = next(iter(records(lab / "store").values()))
    assert set(record["extremes"]) == {"train/loss", "val/loss", "test/loss", "val/deviance", "test/deviance"}


def test_a_metric_that_no_task_declares_and_a_goal_against_its_direction(lab: Path, run_here: Run) -> None:
    values = {"task": "my_lab.counts:counts", "model": "linear", "optimizer": "sgd", "scheduler": "constant", "lr": 0.1}
    for metric, code, words in (
        (
            {"name": "val/top1", "goal": "maximize"},
            2,
            "does not log 'val/top1'; expected one of test/deviance, test/loss",
        ),
        ({"name": "test/deviance", "goal": "maximize"}, 0, "has the goal maximize, but its task says minimize"),
        ({"name": "test/deviance", "goal": "minimize"}, 0, ""),
    ):
        parameters = {key: {"value": value} for key, value in {**values, "val_fraction": 0.2}.items()}
        (lab / "goal.yaml").write_text(json.dumps({"metric": metric, "parameters": parameters}))
        answer = run_here("plan", "goal.yaml", "--store", "store")
        assert answer.returncode == code and words in answer.stderr, answer.stderr
        assert words or "goal" not in answer.stderr
