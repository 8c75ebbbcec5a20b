"""W&B with the real client: offline runs read back with its own reader, online runs against a loopback server."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import wandb
from conftest import TINY, Wandb, records, wait_for

from sweeps.plan import TrialState
from sweeps.reconcile import complete
from sweeps.spec import SweepSpec
from sweeps.store import Store
from trainer import offline
from trainer.config import TrialConfig
from trainer.history import HISTORY_COLUMNS
from trainer.offline import offline_runs, remove_unfinished, write_offline
from trainer.registry import UserError
from trainer.tracking import Online, Run, describe, resolve_mode

CONFIG = TrialConfig.parse({**TINY, "weight_decay": 5e-4})
HISTORY = [{"epoch": e, "step": 6 * e, "train/loss": 1 / e, "val/loss": None, "partial": False} for e in (1, 2, 3)]


def described(config: TrialConfig = CONFIG, sweeps: Sequence[str] = (), record: Any = None) -> Run:
    return describe(config.trial_id, config.canonical(), config.flat(), sweeps, record)


@pytest.fixture(autouse=True)
def fresh_client(no_outside_settings: None) -> Iterator[None]:
    """The client reads its environment once per process."""
    wandb.teardown()
    yield
    wandb.teardown()


def read_back(run: Path) -> list[dict[str, Any]]:
    """The records of an offline run, by the client's own reader."""
    command = [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--json", run]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in answer.stdout.splitlines() if line.strip()]


def test_a_run_is_described_as_the_design_says() -> None:
    run = described(CONFIG, ["b", "a"])
    assert run.trial_id == CONFIG.trial_id
    assert run.name == "usam polyak rho=0.1 wd=0.0005 s=0"
    assert run.job_type == "polyak"
    assert run.tags == ("a", "b")
    assert run.config["rho"] == 0.1 and run.config["model_options.hidden"] == 64 and run.config["epochs"] == 3


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


def assert_complete(run: Path, config: TrialConfig, epochs: int, exit_code: int) -> None:
    """Config, every epoch once and in order, exit code."""
    found = read_back(run)
    (described,) = (record["run"] for record in found if record["type"] == "run")
    assert {k: v for k, v in described["config"]["update"].items() if k != "_wandb"} == config.flat()
    assert described["run_id"] == config.trial_id
    rows = [record["history"]["item"] for record in found if record["type"] == "history"]
    assert [row["epoch"] for row in rows] == list(range(1, epochs + 1))
    assert [record["exit"]["exit_code"] for record in found if record["type"] == "exit"] == [exit_code]


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
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "import os, wandb, trainer.offline as t; from pathlib import Path\n"
        "from test_tracking import CONFIG, HISTORY, described\n"
        "t.close_run = lambda *_: os._exit(1)\n"
        "t.write_offline(Path(sys.argv[1]), described(CONFIG), HISTORY, 'finished', 1.8e9)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path, Path(__file__).parent], check=False, timeout=60)
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
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import time; from test_tracking import CONFIG, HISTORY, described; from trainer.tracking import Online\n"
        "o = Online(); o.start(described(CONFIG), []); [o.log(CONFIG.trial_id, r) for r in HISTORY[:2]]\n"
        "o.drain(60); print('logged', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, Path(__file__).parent], stdout=subprocess.PIPE, start_new_session=True
    )
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


def test_an_unreachable_server_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setattr("trainer.wandb_client.INIT_SECONDS", 1.0)
    online = Online()
    online.start(described(CONFIG), [])
    online.log(CONFIG.trial_id, HISTORY[0])
    online.finish(CONFIG.trial_id, "finished")
    online.drain(90)
    assert online.is_broken
    assert [record.levelname for record in caplog.records if record.name == "polysweep.tracking"] == ["WARNING"]


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
