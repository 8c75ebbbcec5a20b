"""Runs for W&B, and what the real client reads of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.history import HISTORY_COLUMNS
from polysweep.trainer.wandb_runs import Run, describe
from tests.support.project import TINY

CONFIG = TrialConfig.parse({**TINY, "weight_decay": 5e-4})
FLAT = {CONFIG.trial_id: CONFIG.flat()}
HISTORY = [{"epoch": e, "step": 6 * e, "train/loss": 1 / e, "val/loss": None, "partial": False} for e in (1, 2, 3)]


def described(config: TrialConfig = CONFIG, sweeps: Sequence[str] = (), record: Any = None) -> Run:
    return describe(config.trial_id, config.canonical(), config.flat(), sweeps, record)


def read_back(run: Path) -> list[dict[str, Any]]:
    """The records of an offline run, by the client's own reader."""
    command = [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--json", run]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in answer.stdout.splitlines() if line.strip()]


def assert_complete(run: Path, config: TrialConfig, epochs: int, exit_code: int) -> None:
    """Config, every epoch once and in order, exit code."""
    found = read_back(run)
    (described,) = (record["run"] for record in found if record["type"] == "run")
    assert {k: v for k, v in described["config"]["update"].items() if k not in ("_wandb", "polysweep")} == config.flat()
    assert described["run_id"] == config.trial_id
    rows = [record["history"]["item"] for record in found if record["type"] == "history"]
    assert [row["epoch"] for row in rows] == list(range(1, epochs + 1))
    assert [record["exit"]["exit_code"] for record in found if record["type"] == "exit"] == [exit_code]


def put(store: Store, rows: int, outcome: str = "finished", config: TrialConfig = CONFIG, **more: Any) -> None:
    """A trial with a record, as if it had been trained."""
    old = store.record(config.trial_id) or {}
    store.write_config(config.trial_id, config.canonical())
    store.write_history(config.trial_id, [{**dict.fromkeys(HISTORY_COLUMNS), **row} for row in HISTORY[:rows]])
    record = {"outcome": outcome, "width": 1, "epoch": rows, "wandb": None, "ended": 1.8e9 + rows, "error": "oh"}
    now = {"outcome": outcome, "epoch": rows, "ended": 1.8e9 + rows, **more}
    store.write_record(config.trial_id, {**record, **old, **now})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


# Online.


def epochs_of(run: dict[str, Any]) -> list[int]:
    return [json.loads(line)["epoch"] for line in run["history"]]
