"""W&B with the real client: offline runs read back with its own reader, online runs against a loopback server."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wandb

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.states import TrialState
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking import offline_runs as offline
from polysweep.sweeps.tracking.offline_runs import offline_runs, remove_unfinished, write_offline
from polysweep.sweeps.tracking.sync import complete
from polysweep.trainer import wandb_client
from polysweep.trainer import wandb_runs as tracking
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from polysweep.trainer.folders import OwnFolder
from polysweep.trainer.history import HISTORY_COLUMNS
from polysweep.trainer.wandb_runs import Online, describe, resolve_mode
from tests.support.loopback_wandb import Wandb
from tests.support.project import ROOT, TINY
from tests.support.results import records
from tests.support.waiting import wait_for
from tests.support.wandb_runs import CONFIG, HISTORY, assert_complete, described

OTHER = CONFIG.model_copy(update={"seed": 1})
GROUPS = (
    "task=digits model=mlp model_options={'hidden': 32} optimizer=sam scheduler=cosine rho=0.1 lr=0.1 lr_min=0.001 "
    + "batch_siz-0a86e910",
    "task=digits model=mlp optimizer=usam scheduler=polyak rho=0.1 weight_decay=0.0005 batch_size=256 "
    + "epochs=3-c8c6e7ac",
)
"""As the first version wrote them."""


pytestmark = pytest.mark.usefixtures("fresh_client")


def test_a_run_is_described_as_the_design_says() -> None:
    run = described(CONFIG, ["b", "a"])
    assert run.trial_id == CONFIG.trial_id
    assert run.name == "usam polyak rho=0.1 wd=0.0005 s=0"
    assert run.job_type == "polyak"
    assert run.tags == ("a", "b")
    assert run.config["rho"] == 0.1 and run.config["model_options.hidden"] == 64 and run.config["epochs"] == 3


def test_a_run_is_named_from_records_as_it_always_was() -> None:
    """Runs of one config stay in one group, whatever version has logged them."""
    fields = {"optimizer": "sam", "scheduler": "cosine", "lr": 0.1, "lr_min": 0.001, "seed": 3}
    config = TrialConfig.parse({**TINY, **fields, "model_options": {"hidden": 32}})
    canonical, flat = (json.loads(json.dumps(one)) for one in (config.canonical(), config.flat()))
    run = describe(config.trial_id, canonical, flat, [])
    assert (run.name, run.job_type) == ("sam cosine lr=0.1 lr_min=0.001 rho=0.1 wd=0 s=3", "cosine")
    assert run.group == GROUPS[0] and run.config == config.flat()
    first = describe(CONFIG.trial_id, *(json.loads(json.dumps(one)) for one in (CONFIG.canonical(), CONFIG.flat())))
    assert first.group == GROUPS[1]


def test_a_run_says_where_its_numbers_come_from() -> None:
    provenance = {"commit": "c0ffee", "versions": {"torch": "2.9"}, "device": "cpu", "threads": 2, "numerics": 1}
    run = described(record={"width": 4, "provenance": {**provenance, "image": {"lock": "ab"}, "device_model": None}})
    assert run.config["polysweep"] == {
        "commit": "c0ffee", "version": {"torch": "2.9"}, "device": "cpu", "threads": 2, "numerics": 1, "width": 4,
        "image": '{"lock": "ab"}',
    }  # fmt: skip
    assert run.group == described().group and run.name == described().name


def test_the_group_is_the_config_without_its_seed_and_fits_wandb() -> None:
    def group(**change: object) -> str:
        return described(TrialConfig.parse({**TINY, **change})).group

    assert group() == group(seed=3)
    assert group() != group(rho=0.2)
    long = group(model_options={"hidden": 123, "layers": 7}, lower_bound=-1.5, momentum=0.123456, label_smoothing=0.1)
    assert len(long) == 128 and len(group()) <= 128


def test_the_mode_is_what_was_asked_for_or_follows_the_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert resolve_mode(None) == "offline"
    assert resolve_mode("disabled") == "disabled"
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert resolve_mode(None) == "online"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert resolve_mode(None) == "offline"
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY")
    login = tmp_path / "netrc"
    login.write_text("machine api.wandb.ai login user password key\n")
    monkeypatch.setenv("NETRC", str(login))
    monkeypatch.delenv("WANDB_BASE_URL")
    assert resolve_mode(None) == "online"
    with pytest.raises(UserError, match="--wandb: unknown mode 'onlin'; expected one of online, offline, disabled"):
        resolve_mode("onlin")


def test_an_offline_run_is_complete_and_readable(tmp_path: Path) -> None:
    written = write_offline(tmp_path / "wandb", described(CONFIG, ["small"]), HISTORY, "finished", 1.8e9)
    assert written.parent == tmp_path / "wandb"
    assert_complete(written, CONFIG, epochs=3, exit_code=0)
    assert offline_runs(tmp_path / "wandb") == {CONFIG.trial_id}
    assert [path.name for path in (tmp_path / "wandb").iterdir()] == [written.name], "nothing else lies there"


def test_writing_a_run_again_changes_nothing(tmp_path: Path) -> None:
    def files() -> list[tuple[Path, int]]:
        """Without the log of wandb's own service, which writes it when it likes."""
        found = (path for path in tmp_path.rglob("*") if path.name != "debug-core.log")
        return sorted((path, path.stat().st_mtime_ns) for path in found)

    first = write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9)
    before = files()
    assert write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9) == first
    assert files() == before


def test_of_two_writers_of_one_run_one_wins(tmp_path: Path) -> None:
    """The second comes while the first is between looking and renaming."""
    winner: list[Path] = []

    def first(live: Any, outcome: str) -> None:
        monkeypatch.undo()
        close(live, outcome)
        winner.append(write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9))

    close = offline.close_run
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(offline, "close_run", first)
        assert write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9) == winner[0]
    assert [path.name for path in tmp_path.iterdir()] == [winner[0].name]
    assert_complete(winner[0], CONFIG, 3, 0)


def test_what_a_killed_writer_left_is_removed_and_written_again(tmp_path: Path) -> None:
    code = (
        "import sys, os, wandb, polysweep.sweeps.tracking.offline_runs as t; from pathlib import Path\n"
        "from tests.support.wandb_runs import CONFIG, HISTORY, described\n"
        "t.close_run = lambda *_: os._exit(1)\n"
        "t.write_offline(Path(sys.argv[1]), described(CONFIG), HISTORY, 'finished', 1.8e9)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=False, timeout=60)
    assert offline_runs(tmp_path) == set()
    assert list(tmp_path.glob(".aside-*"))
    with next(tmp_path.glob(".aside-*/lock")).open() as lock:  # as long as its writer lives, it stays
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_unfinished(tmp_path)
        assert list(tmp_path.iterdir())
    remove_unfinished(tmp_path)
    assert not list(tmp_path.iterdir())
    assert_complete(write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9), CONFIG, 3, 0)


# Online.


def epochs_of(run: dict[str, Any]) -> list[int]:
    return [json.loads(line)["epoch"] for line in run["history"]]


def test_an_online_run_is_complete_with_each_epoch_once(wandb_server: Wandb) -> None:
    online = Online()
    run = described(CONFIG, ["small"])
    online.start(run, [])
    for row in HISTORY:
        online.log(run.trial_id, row)
    online.finish(run.trial_id, "finished")
    online.drain(60)
    found = wandb_server.dump()["runs"][CONFIG.trial_id]
    assert epochs_of(found) == [1, 2, 3]
    assert (found["complete"], found["exit_code"]) == (True, 0)
    assert found["attributes"]["tags"] == ["small"]
    assert found["attributes"]["groupName"] == run.group
    assert {k: v["value"] for k, v in found["config"].items() if k != "_wandb"} == run.config
    assert json.loads(found["summary"])["outcome"] == "finished"


def test_a_run_that_was_killed_is_completed_with_each_epoch_once(wandb_server: Wandb, tmp_path: Path) -> None:
    """The client is killed after two epochs that may or may not have arrived; the rest comes from the Store."""
    code = (
        "import time; from tests.support.wandb_runs import CONFIG, HISTORY, described\n"
        "from polysweep.trainer.wandb_runs import Online\n"
        "o = Online(); o.start(described(CONFIG), []); [o.log(CONFIG.trial_id, r) for r in HISTORY[:2]]\n"
        "o.drain(60); print('logged', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None and child.stdout.readline() == b"logged\n"
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    online = Online()
    online.start(described(CONFIG), HISTORY[:2])
    online.log(CONFIG.trial_id, HISTORY[2])
    online.finish(CONFIG.trial_id, "finished")
    online.drain(60)
    found = wandb_server.dump()["runs"][CONFIG.trial_id]
    assert epochs_of(found) == [1, 2, 3]
    assert found["exit_code"] == 0


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "polysweep.tracking"]


def test_an_unreachable_server_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setattr("polysweep.trainer.wandb_client.INIT_SECONDS", 1.0)
    online = Online()
    for config in (CONFIG, OTHER):
        online.start(described(config), [])
        online.log(config.trial_id, HISTORY[0])
        online.finish(config.trial_id, "finished")
    online.drain(90)
    assert online.is_broken
    (said,) = warnings_of(caplog)
    assert said.startswith("W&B cannot be reached (") and "tried again after 60 s" in said


@pytest.mark.parametrize("fault", [{"only": "RunResumeStatus"}, {"only": "file_stream"}], ids=["opening", "rows"])
def test_a_server_that_comes_back_gets_every_row_of_the_runs_that_go_on(
    fault: dict[str, str], wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One run cannot be opened, or not ended; the other goes on once the server answers again."""
    monkeypatch.setattr("polysweep.trainer.wandb_client.INIT_SECONDS", 1.0)
    monkeypatch.setattr("polysweep.trainer.wandb_client.FINISH_SECONDS", 1.0)
    monkeypatch.setattr("polysweep.trainer.wandb_runs.RETRY_SECONDS", 0.0)
    online = Online()
    if fault["only"] == "file_stream":
        online.start(described(CONFIG), HISTORY[:1])
        online.start(described(OTHER), HISTORY[:1])
        online.drain(60)
    wandb_server.fail(429, **fault)
    if fault["only"] == "RunResumeStatus":
        online.start(described(CONFIG), HISTORY[:1])
        online.start(described(OTHER), HISTORY[:1])
    online.finish(OTHER.trial_id, "finished")
    online.drain(90)
    assert online.is_broken
    wandb_server.recover()
    for row in HISTORY[1:]:
        online.log(CONFIG.trial_id, row)
    online.finish(CONFIG.trial_id, "finished")
    online.drain(90)
    found = wandb_server.dump()["runs"][CONFIG.trial_id]
    assert epochs_of(found) == [1, 2, 3] and found["state"] == "finished"
    assert not online.is_broken and all("cannot be reached" in said for said in warnings_of(caplog))


def test_a_fault_of_one_run_does_not_silence_the_others(
    wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One was deleted on the server, which refuses its id for ever; one has a row that is no row."""
    monkeypatch.setattr("polysweep.trainer.wandb_client.INIT_SECONDS", 2.0)
    third = CONFIG.model_copy(update={"seed": 2})
    online = Online()
    online.start(described(CONFIG), [])
    online.finish(CONFIG.trial_id, "finished")
    online.drain(60)
    wandb.Api(timeout=30).run(f"lab/polysweep/{CONFIG.trial_id}").delete()
    for config in (CONFIG, OTHER, third):
        online.start(described(config), [])
    online.log(third.trial_id, {"loss": 1.0})
    for row in HISTORY:
        for config in (CONFIG, OTHER, third):
            online.log(config.trial_id, row)
    for config in (CONFIG, OTHER, third):
        online.finish(config.trial_id, "finished")
    online.drain(60)
    runs = wandb_server.dump()["runs"]
    assert epochs_of(runs[OTHER.trial_id]) == [1, 2, 3] and CONFIG.trial_id not in runs
    said = warnings_of(caplog)
    assert not online.is_broken and len(said) == 2
    assert f"the W&B run of {CONFIG.trial_id} is not logged" in said[0] and "previously created and deleted" in said[0]
    assert f"the W&B run of {third.trial_id} is not logged" in said[1]


def test_an_interrupted_run_is_preempted_and_then_runs_again(wandb_server: Wandb) -> None:
    """With another provenance at the second time: another commit, another K."""
    online = Online()
    states = []
    for at, (outcome, rows) in enumerate((("running", HISTORY[:1]), ("finished", HISTORY))):
        record = {"width": at + 1, "provenance": {"commit": f"c{at}"}}
        online.start(described(record=record), rows)
        online.drain(60)
        states.append(wandb_server.dump()["runs"][CONFIG.trial_id]["state"])
        online.finish(CONFIG.trial_id, outcome)
        online.drain(60)
        found = wandb_server.dump()["runs"][CONFIG.trial_id]
        states.append(found["state"])
        assert json.loads(found["summary"])["outcome"] == outcome
        assert found["config"]["polysweep"]["value"] == {"commit": f"c{at}", "width": at + 1}
    assert states == ["running", "preempted", "running", "finished"] and epochs_of(found) == [1, 2, 3]


def test_a_run_that_is_started_again_goes_on(wandb_server: Wandb) -> None:
    """A stack that runs out of memory starts over with half of its rows, in the same process."""
    online = Online()
    online.start(described(), HISTORY[:1])
    online.start(described(), HISTORY[:2])
    online.log(CONFIG.trial_id, HISTORY[2])
    online.finish(CONFIG.trial_id, "finished")
    online.drain(60)
    found = wandb_server.dump()["runs"][CONFIG.trial_id]
    assert epochs_of(found) == [1, 2, 3] and found["state"] == "finished"


# The end of the client.


def test_a_run_of_the_users_own_is_waited_for_at_exit(wandb_server: Wandb, tmp_path: Path) -> None:
    """In a notebook or a script that also logs: the client's own hook uploads it, however long that takes."""
    code = (
        "import wandb; from polysweep.sweeps.tracking.wandb_server import Server\n"
        "wandb.init(project='own', id='own').log({'x': 1})\n"
        "Server(); import polysweep.trainer.wandb_client as c; c.EXIT_SECONDS = c.end_client.__defaults__ = (0.0,)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, timeout=100)
    found = wandb_server.dump()["runs"]["own"]
    assert len(found["history"]) == 1 and found["state"] == "finished"


def test_the_end_of_the_client_does_not_wait_for_a_server_that_refuses(wandb_server: Wandb) -> None:
    """A run is open and the server answers 429 from then on: what is left is dropped, and no process stays."""
    online = Online()
    online.start(described(), HISTORY[:1])
    online.drain(60)
    service = wandb_client.service_process()
    wandb_server.fail(429)
    online.log(CONFIG.trial_id, HISTORY[1])
    online.finish(CONFIG.trial_id, "finished")
    began = time.monotonic()
    online.close(0.1)
    assert time.monotonic() - began < wandb_client.FINISH_SECONDS / 2
    assert service is not None and service.poll() is not None and wandb_client.service_process() is None


def test_a_process_that_only_asked_ends_in_bounded_time_too(wandb_server: Wandb) -> None:
    """It waits for an answer of the Api that never comes, and then leaves: its exit hooks end W&B's service."""
    code = (
        "import polysweep.sweeps.tracking.wandb_server as s; s.TIMEOUT_SECONDS = 1\n"
        "from polysweep.trainer.wandb_client import service_process as p\n"
        "try: s.Server()\nexcept s.UserError as e: print(p().pid, e)"
    )
    wandb_server.fail(429)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    pid, _, said = done.stdout.partition(" ")
    assert said.startswith("the W&B server cannot be used") and done.stderr == ""
    assert not Path(f"/proc/{pid}").exists()


def test_folders_of_processes_that_have_ended_are_removed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with OwnFolder(tmp_path, tracking.FOLDER) as living, OwnFolder(tmp_path, tracking.FOLDER) as dead:
        dead._lock.close()  # as the end of its process does
        Online()
        assert [path.name for path in tmp_path.iterdir()] == [living.path.name]
    assert not list(tmp_path.iterdir())


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
