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
from polysweep.sweeps.tracking.sync import complete, upload
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.finished_trials import FLATS, IDS
from tests.support.finished_trials import store as store
from tests.support.loopback_wandb import Wandb
from tests.support.project import TINY
from tests.support.results import records
from tests.support.waiting import wait_for
from tests.support.wandb_runs import HISTORY, epochs_of, put

pytestmark = pytest.mark.usefixtures("fresh_client")


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


def test_a_run_that_was_deleted_in_one_project_goes_into_another(
    store: Store, wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 3, wandb="deleted lab/polysweep")
    monkeypatch.setenv("WANDB_PROJECT", "other")
    counts = upload(store, FLATS)
    assert counts.is_whole and counts.uploaded == 6
    assert len(wandb_server.dump()["projects"]["lab/other"]) == 6


def test_tags_that_the_server_refuses_are_counted_as_missing(
    store: Store, wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert upload(store, FLATS).is_whole
    monkeypatch.setattr(store, "sweeps_of", lambda trial_ids: {trial_id: ["late"] for trial_id in trial_ids})
    monkeypatch.setattr("polysweep.sweeps.tracking.wandb_server.TIMEOUT_SECONDS", 2)
    wandb_server.fail(403, only="UpsertBucket")
    counts = upload(store, FLATS)
    assert counts.tagged == 0 and counts.failed == tuple(IDS) and "cannot be tagged" in counts.why
    wandb_server.recover()
    assert upload(store, FLATS).tagged == 6


def test_an_interrupted_trial_of_an_earlier_attempt_is_put_right(store: Store, wandb_server: Wandb) -> None:
    """The server says failed; the trial was tried again and was interrupted before it was logged."""
    put(store, 1, "failed")
    assert upload(store, FLATS).is_whole
    assert wandb_server.dump()["runs"][IDS[0]]["state"] == "failed"
    put(store, 1, "running", wandb="begun")
    counts = upload(store, FLATS)
    assert counts.is_whole and counts.uploaded == 1
    assert wandb_server.dump()["runs"][IDS[0]]["state"] == "preempted"


def test_a_config_that_is_missing_is_named(store: Store, wandb_server: Wandb) -> None:
    Path(f"{store.root}/trials/{IDS[0]}/config.json").unlink()
    counts = upload(store, FLATS)
    assert counts.uploaded == 5 and counts.failed == (IDS[0],)
    assert f"trials/{IDS[0]}/config.json: missing" in str(counts)
