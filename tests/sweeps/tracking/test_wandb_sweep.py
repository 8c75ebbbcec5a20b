"""A sweep's registration as a W&B Sweep, through the real client's public calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wandb
import yaml

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.files import OutOfReachError
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.offline_runs import write_offline
from polysweep.sweeps.tracking.upload import described_trials, upload
from polysweep.sweeps.tracking.wandb_sweep import register, registered, require_online, sweep_config
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import as_runs, by_lr, sweep
from tests.support.made_searches import SEARCH, search
from tests.support.waiting import wait_for

pytestmark = pytest.mark.usefixtures("fresh_client")
Run = Callable[..., Any]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A sweep of 24 finished trials."""
    monkeypatch.setenv("WANDB_PROJECT", "p")
    sweep(tmp_path / "store", by_lr)
    return Store(str(tmp_path / "store"))


def of_sweep(server: Wandb) -> dict[str, str]:
    """By run the W&B sweep that it belongs to."""
    return {name: run["attributes"].get("sweep", "") for name, run in server.dump()["runs"].items()}


def test_a_grid_has_the_form_of_w_and_b(store: Store) -> None:
    config = sweep_config(store.launched("made"))
    assert config["controller"] == {"type": "local"} and config["method"] == "grid" and config["name"] == "made"
    assert config["metric"] == {"name": "test/top1", "goal": "maximize"}
    parameters = config["parameters"]
    assert parameters["task"] == {"value": "digits"} and parameters["rho"] == {"values": [0.1, 0.4]}
    assert parameters["scheduler"] == {"values": ["constant", "polyak"]} and parameters["seed"] == {"values": [0, 1, 2]}
    assert parameters["lr"] == {"values": [0.01, 0.1, 1.0]}


def test_a_search_has_its_distributions(tmp_path: Path) -> None:
    early = {"early_terminate": {"type": "hyperband", "min_iter": 1, "eta": 2}}
    search(tmp_path / "random", **early)
    config = sweep_config(Store(str(tmp_path / "random")).launched("made"))
    assert config["method"] == "random" and "hyperband" in config["description"]
    rho = config["parameters"]["rho"]
    assert rho == {"distribution": "log_uniform_values", "min": 0.01, "max": 1.0}
    assert config["parameters"]["optimizer"] == {"values": ["usam", "sam"]}
    sweep(tmp_path / "bayes", by_lr, **{**SEARCH, "method": "bayes"})
    bayes = sweep_config(Store(str(tmp_path / "bayes")).launched("made"))
    assert bayes["method"] == "bayes" and bayes["parameters"]["rho"] == rho, "before anything is proposed"


def test_a_sweep_is_registered_once_with_the_runs_that_are_there(wandb_server: Wandb, store: Store) -> None:
    wandb_server.load("p", as_runs(store, "made")[:5])
    said: list[str] = []
    environment = {name: os.environ.get(name) for name in ("WANDB_ENTITY", "WANDB_PROJECT")}
    for _ in range(2):
        register(store.launched("made"), store, said.append)
    assert said == ["made: registered as the W&B sweep lab/p/sweep000"]
    assert environment == {name: os.environ.get(name) for name in environment}, "wandb.sweep sets it"
    found = wandb_server.dump()
    (registration,) = found["sweeps"].values()
    assert registration["project"] == "lab/p" and found["unknown"] == []
    assert yaml.safe_load(registration["config"]) == sweep_config(store.launched("made"))
    assert set(of_sweep(wandb_server).values()) == {"sweep000"} and len(of_sweep(wandb_server)) == 5
    assert registered(store, ["other", "made"]) == "sweep000" and registered(store, ["other"]) is None


def test_another_project_has_a_registration_of_its_own(
    wandb_server: Wandb, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(store.launched("made"), store, lambda _: None)
    monkeypatch.setenv("WANDB_PROJECT", "q")
    assert registered(store, ["made"]) is None
    register(store.launched("made"), store, lambda _: None)
    assert registered(store, ["made"]) == "sweep001"


def test_what_is_uploaded_belongs_to_it(wandb_server: Wandb, store: Store) -> None:
    register(store.launched("made"), store, lambda _: None)
    trials = {trial.trial_id: trial.values for trial in list(store.launched("made").trials)[:2]}
    assert upload(store, trials).uploaded == 2
    assert of_sweep(wandb_server) == dict.fromkeys(trials, "sweep000")
    assert wandb.Api(timeout=30).run(f"lab/p/{next(iter(trials))}").sweep_name == "sweep000"


def test_an_offline_run_belongs_to_it_once_it_is_synced(wandb_server: Wandb, store: Store, tmp_path: Path) -> None:
    register(store.launched("made"), store, lambda _: None)
    trial = store.launched("made").trials[0]
    (described,) = described_trials(store, {trial.trial_id: trial.values}).values()
    written = write_offline(tmp_path, described.run(store), store.history(trial.trial_id), "finished", 1.0)
    command = [str(Path(sys.executable).with_name("wandb")), "sync", str(written)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    assert of_sweep(wandb_server) == {trial.trial_id: "sweep000"}


def test_a_damaged_registration_stops_nothing(store: Store) -> None:
    store.files.write("sweeps/made/wandb-sweep-00000000.json", b"{")
    assert registered(store, ["made"]) is None


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("no key", "--wandb-sweep: no W&B key; set WANDB_API_KEY, or run `wandb login`"),
        ("read-only", "--wandb-sweep: lab/p: the sweep cannot be registered: .*permission denied: lab/p"),
    ],
)
def test_a_server_that_refuses_is_an_error(
    fault: str, expected: str, wandb_server: Wandb, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "no key":
        monkeypatch.delenv("WANDB_API_KEY")
    wandb_server.protect("lab/p")
    with pytest.raises(UserError, match=f"^{expected}") as refused:
        register(store.launched("made"), store, lambda _: None)
    assert "\n" not in str(refused.value) and registered(store, ["made"]) is None


def test_a_launch_that_is_not_online_cannot_register() -> None:
    require_online("online")
    with pytest.raises(UserError, match="--wandb is offline; expected online, or `polysweep sync NAME --wandb-sweep`"):
        require_online("offline")


def test_sync_registers_and_uploads(wandb_server: Wandb, store: Store, run_here: Run) -> None:
    wandb_server.load("p", as_runs(store, "made")[:20])
    for said in (True, False):
        done = run_here("sync", "made", "--store", store.root, "--wandb-sweep")
        assert done.returncode == 0, done.stderr
        assert ("registered as the W&B sweep lab/p/sweep000" in done.stdout) is said
    assert of_sweep(wandb_server) == {trial.trial_id: "sweep000" for trial in store.launched("made").trials}


def test_a_launch_registers_and_its_runs_are_in_the_sweep(
    wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polysweep.sweeps.commands.launch import start
    from polysweep.sweeps.job import LaunchOptions
    from polysweep.sweeps.scheduling import ray_environment
    from polysweep.sweeps.worker.job_run import JobRun
    from polysweep.trainer.wandb_runs import Online
    from tests.support import without_ray
    from tests.support.project import TINY

    monkeypatch.setenv("WANDB_PROJECT", "p")
    monkeypatch.setattr(ray_environment, "prepare", lambda *_, **__: None)
    parameters = {name: {"value": value} for name, value in TINY.items() if name != "seed"}
    spec = SweepSpec.parse(
        json.dumps({"name": "tiny", "parameters": parameters, "seeds": 2, "launch": {"stack": 1}}), "tiny.yaml"
    )
    online = Online()
    monkeypatch.setattr(without_ray, "JobRun", lambda jobs: JobRun(jobs, online))
    place = Store(str(tmp_path / "store"))
    with pytest.raises(UserError, match="--wandb is disabled"):
        start(spec, place, LaunchOptions("disabled", wandb_sweep=True), without_ray.one_by_one)
    assert place.sweeps() == [], "nothing was written"
    assert start(spec, place, LaunchOptions("online", wandb_sweep=True), without_ray.one_by_one) == 0
    online.drain(30)
    wait_for(lambda: len(of_sweep(wandb_server)) == 2, 30)
    assert set(of_sweep(wandb_server).values()) == {"sweep000"}


def test_a_store_out_of_reach_is_not_taken_for_a_sweep_that_is_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))

    def gone(path: str) -> bytes:
        raise OutOfReachError(path)

    monkeypatch.setattr(store.files, "read", gone)
    with pytest.raises(OutOfReachError):
        registered(store, ["one"])
