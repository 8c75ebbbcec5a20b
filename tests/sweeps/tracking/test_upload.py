"""What the server lacks is completed, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.states import TrialState
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import complete
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.loopback_wandb import Wandb
from tests.support.project import TINY
from tests.support.results import records
from tests.support.waiting import wait_for
from tests.support.wandb_runs import HISTORY, epochs_of

pytestmark = pytest.mark.usefixtures("fresh_client")


# What the server lacks.


def test_ended_trials_that_the_server_lacks_are_completed_once(
    wandb_server: Wandb, spec_file: Callable[..., Path], tmp_path: Path
) -> None:
    spec = SweepSpec.load(spec_file())
    store = Store(str(tmp_path / "store"))
    trials = spec.trials[:2]
    for trial in trials:
        store.write_config(trial.trial_id, trial.config.canonical())
        store.write_history(trial.trial_id, [{**dict.fromkeys(HISTORY_COLUMNS), **row} for row in HISTORY])
        store.write_record(
            trial.trial_id,
            {"outcome": "finished", "width": 1, "epoch": 3, "wandb": None, "ended": 1.8e9, "trial_id": trial.trial_id},
        )
    complete({t.trial_id: t.config.flat() for t in trials}, store, "online")
    first = wandb_server.dump()["runs"]
    assert {name: epochs_of(run) for name, run in first.items()} == {t.trial_id: [1, 2, 3] for t in trials}
    assert all(run["complete"] for run in first.values())
    assert {r["wandb"] for r in records(tmp_path / "store").values()} == {"online"}
    complete({t.trial_id: t.config.flat() for t in trials}, store, "online")
    assert {n: r["upserts"] for n, r in wandb_server.dump()["runs"].items()} == {
        n: r["upserts"] for n, r in first.items()
    }
    assert store.state(trials[0].trial_id) == TrialState("finished", 1, 3)


@pytest.mark.long  # the chaos of make test kills a launch whose runs are on the server, too
def test_every_online_trial_of_a_killed_launch_is_one_complete_run(
    wandb_server: Wandb, spec_file: Callable[..., Path], tmp_path: Path
) -> None:
    """`polysweep train` with the real client is killed in the middle; the same command completes the run."""
    store = tmp_path / "store"
    settings = [f"{key}={value}" for key, value in {**TINY, "model": "resnet8", "epochs": 8}.items()]
    command = [
        Path(sys.executable).with_name("polysweep"),
        "train",
        *settings,
        "--store",
        store,
        "--wandb",
        "online",
    ]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    wait_for(lambda: any(2 <= r["epoch"] < 8 for r in records(store).values()), 60, None)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (found,) = wandb_server.dump()["runs"].values()
    assert epochs_of(found) == list(range(1, 9))
    assert (found["complete"], found["exit_code"]) == (True, 0)
    (record,) = records(store).values()
    assert record["wandb"] == "online" and record["outcome"] == "finished"
