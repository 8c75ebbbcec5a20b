"""The service around the trials: failures that are a trial's own, extending, stopping, logs and sync."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from tests.support.commands import assert_user_error, assert_user_error_after_start
from tests.support.loopback_wandb import Wandb
from tests.support.made_trials import fake
from tests.support.results import histories, records
from tests.support.waiting import wait_for

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]
SpecFile = Callable[..., Path]

FRAGILE = """
import os
from pathlib import Path
import torch
from polysweep import REQUIRED, declare
from polysweep.trainer.schedulers.cosine import Constant

@declare(uses={"lr": REQUIRED})
class Fragile(Constant):
    '''Breaks before its third epoch at lr = 0.5, as long as a file is there.'''
    def start_epoch(self, epoch):
        if epoch == 2 and Path(os.environ["BREAKS"]).exists() and any(config.lr == 0.5 for config in self.configs):
            raise RuntimeError("it broke")
"""


@pytest.mark.parametrize("on_ray", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_trial_that_fails_fails_alone_and_retry_failed_runs_exactly_those(
    run: Run, launch_here: Run, run_here: Run, spec_file: SpecFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    on_ray: bool,
) -> None:  # fmt: skip
    """In a stack of four; its traceback is kept, the others end as they would have, and it goes on where it was."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    monkeypatch.syspath_prepend(tmp_path)
    breaks = tmp_path / "breaks"
    monkeypatch.setenv("BREAKS", str(breaks))
    variants = [{"scheduler": {"value": "fragile:Fragile"}, "lr": {"values": [0.1, 0.5]}}]
    spec = spec_file(variants=variants, seeds=1, launch={"stack": 4, "max_failures": 1, "checkpoint_seconds": 0})
    whole, store = tmp_path / "whole", tmp_path / "store"
    assert launch_here(spec, "--store", whole).returncode == 0

    breaks.touch()
    answer = run("launch", spec, "--store", store) if on_ray else launch_here(spec, "--store", store)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "small: 2 finished, 2 failed" in answer.stdout
    assert answer.stderr.count("RuntimeError: it broke") == 2
    found = records(store)
    failed = {t: r for t, r in found.items() if r["outcome"] == "failed"}
    assert len(failed) == 2
    for record in failed.values():
        assert "Traceback" in record["error"] and 'raise RuntimeError("it broke")' in record["error"]
        assert (record["epoch"], record["failures"]) == (2, 2), "tried again once, from its checkpoint"
        assert any("trained alone from there" in note for note in record["notes"])
    kept = {t: rows for t, rows in histories(store).items() if t not in failed}
    assert kept == {t: rows for t, rows in histories(whole).items() if t not in failed}
    assert run_here("launch", spec, "--store", store).returncode == 1, "nothing is started, and it says so"

    breaks.unlink()
    again = launch_here(spec, "--store", store, "--retry-failed")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "2 failed trials are tried again" in again.stdout and "small: 4 finished" in again.stdout
    assert histories(store) == histories(whole)
    for trial_id, record in records(store).items():
        assert [s["from_epoch"] for s in record["sessions"]] == ([0, 2] if trial_id in failed else [0])
        assert len(record.get("errors", [])) == (trial_id in failed)
    log = run("logs", "small", next(iter(failed))[:10], "--store", store).stdout
    assert "epoch 3/3" in log and "RuntimeError: it broke" in log and "finished after epoch 3" in log


DEADLY = """
import os, signal
from torch import nn

class Deadly(nn.Sequential):
    '''Kills the worker that trains it; only there is the Store's process a Ray worker.'''
    def __init__(self, input_shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, classes))
    def forward(self, x):
        if "RAY_RAYLET_PID" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)
"""


@pytest.mark.long
def test_a_trial_that_always_kills_its_worker_ends_the_launch_with_one_line(
    run: Run, spec_file: SpecFile, tmp_path: Path
) -> None:
    """Its error leaves no traceback; it is not tried for ever, and the other trials end."""
    (tmp_path / "deadly.py").write_text(DEADLY)
    parameters = json.loads(spec_file().read_text())["parameters"] | {"model": {"values": ["mlp", "deadly:Deadly"]}}
    spec = spec_file(parameters=parameters, variants=[{"scheduler": {"value": "polyak"}}], tuned=[], seeds=1,
                     launch={"stack": 1})  # fmt: skip
    answer = run("launch", spec, "--store", "store", timeout=300)
    assert_user_error_after_start(answer, "stacks could not be run")
    found = [record["outcome"] for record in records(tmp_path / "store").values()]
    assert sorted(found) == ["finished", "finished", "running", "running"]
    assert max(len(record["sessions"]) for record in records(tmp_path / "store").values()) <= 12


def test_a_longer_file_adds_its_trials_and_another_spec_needs_extend(
    run_here: Run, spec_file: SpecFile, tmp_path: Path
) -> None:
    store = Store(str(tmp_path / "store"))
    spec = SweepSpec.load(spec_file())
    store.write_sweep(spec)
    fake(store, spec)
    more = spec_file(seeds=3)
    planned = json.loads(run_here("plan", more, "--store", "store", "--json").stdout)
    assert planned["extension"] == {"new": 6, "gone": 0, "unchanged": 12, "changed": []}
    assert planned["counts"]["new"] == 6
    fewer = spec_file(seeds=1)
    shown = run_here("plan", fewer, "--store", "store").stdout
    assert "0 trials are new in the spec, 6 unchanged, 6 no longer in it (their results are kept)" in shown

    parameters = json.loads(more.read_text())["parameters"] | {"epochs": {"value": 5}}
    other = spec_file(parameters=parameters)
    shown = run_here("plan", other, "--store", "store").stdout
    assert "launch needs --extend" in shown and "  epochs: 3 -> 5" in shown
    refused = run_here("launch", other, "--store", "store")
    assert_user_error(refused, "'small' is in use by another spec (epochs: 3 -> 5)", "--extend")
    assert store.launched("small").text == spec.text, "nothing has changed"

    extended = SweepSpec.load(other)
    store.write_sweep(extended)
    fake(store, extended, epochs=5)
    answer = run_here("launch", other, "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    kept = store.launched("small")
    assert [trial.trial_id for trial in kept.trials] == [trial.trial_id for trial in extended.trials]
    assert [trial.trial_id for trial in kept.gone] == [trial.trial_id for trial in spec.trials]
    assert store.files.read("sweeps/small/spec-1.yaml") == spec.text.encode(), "the earlier spec is kept"
    found = json.loads(run_here("status", "small", "--store", "store", "--json").stdout)
    assert (found["counts"]["trials"], found["gone"]) == (12, 12)
    assert "12 trials are no longer in the spec" in run_here("status", "small", "--store", "store").stdout


def test_a_damaged_record_is_named_and_the_rest_goes_on(launch_here: Run, spec_file: SpecFile, tmp_path: Path) -> None:
    spec, store = spec_file(seeds=1), tmp_path / "store"
    trials = SweepSpec.load(spec).trials
    place = Store(str(store))
    place.files.write(f"trials/{trials[0].trial_id}/record.json", b"{")
    answer = launch_here(spec, "--store", store)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "small: 5 finished, 1 failed" in answer.stdout
    assert f"failed: {trials[0].trial_id}" in answer.stderr and "record.json: damaged" in answer.stderr
    again = launch_here(spec, "--store", store, "--retry-failed")
    assert again.returncode == 0 and "small: 6 finished" in again.stdout, again.stdout + again.stderr
    assert place.files.read(f"trials/{trials[0].trial_id}/record-damaged.json") == b"{"


def test_stop_ends_a_launch_in_order_and_the_same_command_continues(
    run_here: Run, start: Start, spec_file: SpecFile, tmp_path: Path
) -> None:
    parameters = json.loads(spec_file().read_text())["parameters"] | {
        "model": {"value": "resnet8"}, "epochs": {"value": 30},
    }  # fmt: skip
    spec = spec_file(parameters=parameters, seeds=1, launch={"checkpoint_seconds": 5})
    store = tmp_path / "store"
    process = start("launch", spec, "--store", store)
    wait_for(lambda: sum(r["epoch"] for r in records(store).values()) >= 2, 90, process)
    status = json.loads(run_here("status", "small", "--store", store, "--json").stdout)
    assert len(status["launches"]) == 1 and f"pid {process.pid}" in status["launches"][0]
    assert any(t["outcome"] == "running" and "since" in t["holder"] for t in status["trials"])
    stopped = run_here("stop", "small", "--store", store)
    assert stopped.returncode == 0 and f"(pid {process.pid})" in stopped.stdout
    assert process.wait(timeout=20) == 143
    states = [Store(str(store)).state(t) for t in records(store)]
    assert {state.state for state in states} <= {"interrupted", "finished"} and any(state.epoch for state in states)
    assert not [name for name in Store(str(store)).files.names("sweeps/small") if name.startswith(("stop-", "launch-"))]
    assert "no launch is running" in run_here("stop", "small", "--store", store).stdout
    assert_user_error(run_here("logs", "small", "zzz", "--store", store), "'zzz'", "matches no trial of small")


def test_sync_uploads_exactly_what_the_server_lacks_and_then_nothing(
    run: Run, spec_file: SpecFile, tmp_path: Path, wandb_server: Wandb
) -> None:
    """A run that is there, one that never started, one of which rows are missing, and one without this sweep's tag."""
    from polysweep.trainer.wandb_runs import Online, describe

    store = Store(str(tmp_path / "store"))
    spec = SweepSpec.load(spec_file(seeds=1, run_cap=4))
    store.write_sweep(spec)
    fake(store, spec)
    whole, _never, killed, adopted = spec.trials
    online = Online()
    for trial, rows, tags in ((whole, 3, ["small"]), (killed, 1, ["small"]), (adopted, 3, ["earlier"])):
        run_of = describe(trial.trial_id, trial.config.canonical(), trial.config.flat(), tags)
        online.start(run_of, store.history(trial.trial_id)[:rows])
        online.finish(trial.trial_id, "finished" if rows == 3 else "running")
    online.drain(60)
    before = {name: found["upserts"] for name, found in wandb_server.dump()["runs"].items()}
    assert len(before) == 3

    answer = run("sync", "small", "--store", "store", preexec_fn=None)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "1 W&B runs were complete, 2 uploaded, 1 tagged, 0 still incomplete" in answer.stdout
    runs = wandb_server.dump()["runs"]
    assert len(runs) == 4
    for found in runs.values():
        assert [json.loads(line)["epoch"] for line in found["history"]] == [1, 2, 3]
        assert "small" in found["attributes"]["tags"] and found["state"] == "finished"
    assert set(runs[adopted.trial_id]["attributes"]["tags"]) == {"earlier", "small"}
    assert runs[whole.trial_id]["upserts"] == before[whole.trial_id], "what was complete is not touched"
    after = {name: found["upserts"] for name, found in runs.items()}
    again = run("sync", "small", "--store", "store", preexec_fn=None)
    assert again.returncode == 0 and "4 W&B runs were complete, 0 uploaded, 0 tagged" in again.stdout
    assert {name: found["upserts"] for name, found in wandb_server.dump()["runs"].items()} == after
    assert {r["wandb"] for r in records(tmp_path / "store").values()} == {"online"}


def test_sync_without_a_login_or_a_server_says_so(
    run: Run, spec_file: SpecFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path / "store"))
    spec = SweepSpec.load(spec_file(seeds=1, run_cap=1))
    store.write_sweep(spec)
    fake(store, spec)
    assert_user_error(run("sync", "small", "--store", "store"), "not logged in", "WANDB_API_KEY")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    assert_user_error(run("sync", "small", "--store", "store"), "the W&B server cannot be used")
