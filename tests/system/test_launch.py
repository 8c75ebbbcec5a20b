"""Sweeps on a real Ray: to the end, through kills and signals, and not twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.offline_runs import offline_run
from polysweep.trainer.config import TrialConfig
from tests.support.loopback_wandb import Wandb
from tests.support.processes import descendants, is_alive, kill_group
from tests.support.results import histories, records
from tests.support.waiting import wait_for
from tests.support.wandb_runs import assert_complete

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]
SpecFile = Callable[..., Path]


def assert_mirrored(store: Path) -> None:
    """One complete offline run per trial."""
    found = records(store)
    runs = list((store / "wandb").iterdir())
    assert len(runs) == len(found), runs
    for trial_id, record in found.items():
        config = TrialConfig.parse(Store(str(store)).config(trial_id) or {})
        written = offline_run(store / "wandb", trial_id)
        assert written is not None
        assert_complete(written, config, record["epoch"], 0)


def test_a_sweep_runs_to_its_end_and_a_finished_one_starts_nothing(
    run: Run, run_here: Run, launch_here: Run, spec_file: SpecFile, tmp_path: Path
) -> None:
    diverging = [{"scheduler": {"value": "constant"}, "lr": {"values": [1e30, 1e33]}},
                 {"scheduler": {"value": "polyak"}}]  # fmt: skip
    spec, store = spec_file(variants=diverging), tmp_path / "store"
    answer = run("launch", spec, "--store", store)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "small: 12 trials in 4 cells: 12 new" in answer.stdout
    assert "small: 4 finished, 8 diverged" in answer.stdout
    assert len((answer.stdout + answer.stderr).splitlines()) < 12, "Ray and W&B are silent"
    assert Counter(r["outcome"] for r in records(store).values()) == {"finished": 4, "diverged": 8}
    assert_mirrored(store)
    assert run_here("table", "small", "--store", store).stdout.count("diverged 2/2") == 2
    before = {path: path.stat().st_mtime_ns for path in store.glob("trials/*/*")}

    started = time.monotonic()
    again = run("launch", spec, "--store", store)
    assert time.monotonic() - started < 5, "the promise of the issue, not a benchmark"
    assert again.returncode == 0
    assert "nothing to start, all 12 trials have ended (4 finished, 8 diverged)" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in store.glob("trials/*/*")} == before

    wider = spec_file(variants=diverging, seeds=3)
    planned = json.loads(run_here("plan", wider, "--store", store, "--json").stdout)
    assert [planned["counts"][name] for name in ("new", "finished", "diverged")] == [6, 4, 8]
    assert launch_here(wider, "--store", store).returncode == 0
    assert len(records(store)) == 18
    assert all(len(r["sessions"]) == 1 for r in records(store).values()), "no trial ran twice"


def test_a_finished_sweep_does_not_import_ray(run_here: Run, spec_file: SpecFile, tmp_path: Path) -> None:
    spec = spec_file(
        parameters={
            k: {"value": v}
            for k, v in {
                "task": "digits", "model": "mlp", "optimizer": "sgd", "scheduler": "polyak", "epochs": 1,
                "batch_size": 1437,
            }.items()
        },
        variants=[{}],
        tuned=[],
        seeds=1,
        name="one",
    )  # fmt: skip
    config = ["task=digits", "model=mlp", "optimizer=sgd", "scheduler=polyak", "epochs=1", "batch_size=1437"]
    assert run_here("train", *config, "--store", tmp_path / "store", "--wandb", "disabled").returncode == 0
    code = (
        "import sys; from polysweep.cli import app\n"
        "sys.argv[1:] = ['launch', sys.argv[1], '--store', sys.argv[2], '--wandb', 'disabled']\n"
        "try: app()\n"
        "except SystemExit as end: print(end.code, [m for m in ('ray', 'torch', 'wandb') if m in sys.modules])"
    )
    answer = subprocess.run(
        [Path(os.sys.executable), "-c", code, spec, tmp_path / "store"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nothing to start" in answer.stdout, "a trial that `train` has run is not run again by a sweep"
    assert answer.stdout.splitlines()[-1] == "0 []"


@pytest.mark.long  # the chaos of make test kills worker and driver too
def test_killed_at_five_moments_a_sweep_ends_as_if_undisturbed(
    run: Run, run_here: Run, launch_here: Run, start: Start, spec_file: SpecFile, tmp_path: Path
) -> None:
    """SIGKILL of the whole process group, then the same command, five times; then to the end."""
    parameters = {
        "task": {"value": "digits"},
        "model": {"value": "resnet8"},
        "optimizer": {"values": ["usam", "sam"]},
        "rho": {"values": [0.1, 0.3]},
        "batch_size": {"value": 256},
        "epochs": {"value": 8},
    }
    spec = spec_file(parameters=parameters, seeds=1, launch={"checkpoint_seconds": 0.1, "stack": 2})
    undisturbed, store = tmp_path / "undisturbed", tmp_path / "store"
    assert launch_here(spec, "--store", undisturbed).returncode == 0

    def epochs() -> int:
        return sum(r["epoch"] for r in records(store).values())

    moments = random.Random(7)
    ended: dict[str, int] = {}
    for kill in range(5):
        before = epochs()
        process = start("launch", spec, "--store", store)
        if kill == 0:  # before anything has been trained
            wait_for((store / "sweeps/small/sweep.json").exists, 60, process)
        else:
            wait_for(lambda before=before: epochs() > before + moments.randrange(12), 90, process)
        children = descendants(process.pid)
        kill_group(process)
        wait_for(lambda children=children: not any(map(is_alive, children)), 20)
        assert any(r["outcome"] == "running" for r in records(store).values()) or kill == 0
        ended |= {t: len(r["sessions"]) for t, r in records(store).items() if r["outcome"] == "finished"}
    answer = run("launch", spec, "--store", store)
    assert answer.returncode == 0, answer.stdout + answer.stderr

    assert histories(store) == histories(undisturbed)
    for record in records(store).values():
        assert record["outcome"] == "finished"
        starts = [session["from_epoch"] for session in record["sessions"]]
        assert starts == sorted(starts) and max(starts) < 8, "continued, never run again"
    assert any(len(record["sessions"]) > 1 for record in records(store).values())
    assert {t: len(records(store)[t]["sessions"]) for t in ended} == ended, "a finished trial is not started again"
    tables = [run_here("table", "small", "--store", place).stdout for place in (store, undisturbed)]
    assert tables[0] == tables[1] and "polyak" in tables[0]
    assert_mirrored(store)


LONG_EPOCH = {
    "parameters": {
        "task": {"value": "digits"},
        "model": {"value": "resnet32"},
        "optimizer": {"value": "usam"},
        "rho": {"value": 0.1},
        "batch_size": {"value": 8},
        "epochs": {"value": 2},
    },
    "variants": [{"scheduler": {"value": "polyak"}}],
    "tuned": [],
    "seeds": 4,
    "launch": {"stack": 2},
}
"""180 steps of a stack of two ResNet-32: about half a minute an epoch on one core."""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGQUIT, 131)])
@pytest.mark.long  # the next one is as quick, in short epochs
def test_a_signal_ends_a_launch_within_ten_seconds_also_in_a_long_epoch(
    start: Start, spec_file: SpecFile, tmp_path: Path, number: int, code: int
) -> None:
    spec, store = spec_file(**LONG_EPOCH), tmp_path / "store"
    process = start("launch", spec, "--store", store)
    wait_for(lambda: len(records(store)) == 4, 60, process)
    time.sleep(2)  # well inside the first epoch
    children = descendants(process.pid)
    sent = time.monotonic()
    os.kill(process.pid, number)
    assert process.wait(timeout=20) == code
    assert time.monotonic() - sent < 10
    wait_for(lambda: not any(map(is_alive, children)), 10)
    states = {t: Store(str(store)).state(t) for t in records(store)}
    assert {(s.state, s.epoch) for s in states.values()} == {("interrupted", 0)}


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.long),
    ],
)
def test_a_signal_keeps_every_completed_epoch(
    run_here: Run, start: Start, spec_file: SpecFile, tmp_path: Path, number: int, code: int
) -> None:
    """Also those younger than the last checkpoint; and the same command goes on from there.

    To the whole group, as a terminal or a batch system does: Ray's servers do not hear it, and live until the workers
    have stored all.
    """
    parameters = {**LONG_EPOCH["parameters"], "model": {"value": "resnet8"}, "batch_size": {"value": 256},
                  "epochs": {"value": 200}}  # fmt: skip
    spec = spec_file(**{**LONG_EPOCH, "parameters": parameters, "launch": {"checkpoint_seconds": 8, "stack": 2}})
    store = tmp_path / "store"
    process = start("launch", spec, "--store", store)
    wait_for(lambda: len(records(store)) == 4 and all(r["epoch"] for r in records(store).values()), 90, process)
    stored = {t: r["epoch"] for t, r in records(store).items()}
    time.sleep(4)  # a few epochs, and the next checkpoint is further off
    sent = time.monotonic()
    os.killpg(process.pid, number)
    assert process.wait(timeout=20) == code
    assert time.monotonic() - sent < 10
    kept = {t: r["epoch"] for t, r in records(store).items()}
    assert all(kept[t] > stored[t] for t in kept), (stored, kept)
    assert {t: len(rows) for t, rows in histories(store).items()} == kept
    planned = json.loads(run_here("plan", spec, "--store", store, "--json").stdout)
    assert planned["counts"]["interrupted"] == 4


def test_interrupted_training_of_one_trial_continues(run_here: Run, start: Start, tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = ["task=digits", "model=resnet8", "optimizer=sam", "scheduler=polyak", "rho=0.1", "epochs=12"]
    process = start("train", *settings, "--store", store)
    wait_for(lambda: any(r["epoch"] >= 1 for r in records(store).values()), 60, process)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=10) == 130
    (record,) = records(store).values()
    assert 1 <= record["epoch"] < 12 and record["outcome"] == "running"
    answer = run_here("train", *settings, "--store", store, "--wandb", "disabled")
    assert answer.returncode == 0 and f"epoch {record['epoch'] + 1}/12" in answer.stdout
    assert "epoch 1/12" not in answer.stdout
    assert run_here("train", *settings, "--store", tmp_path / "whole", "--wandb", "disabled").returncode == 0
    assert histories(store) == histories(tmp_path / "whole")
    assert (
        "nothing to start, it has finished"
        in run_here("train", *settings, "--store", store, "--wandb", "disabled").stdout
    )


def test_a_trial_that_another_process_runs_is_not_run_beside_it(run_here: Run, start: Start, tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = ["task=digits", "model=resnet8", "optimizer=sam", "scheduler=polyak", "rho=0.1", "epochs=200"]
    process = start("train", *settings, "--store", store)
    wait_for(lambda: records(store), 60, process)
    answer = run_here("train", *settings, "--store", store)
    assert answer.returncode == 2
    assert f"pid {process.pid}" in answer.stderr


@pytest.mark.long  # as test_tracking's, with a whole launch
def test_online_a_killed_launch_ends_as_one_complete_run_per_trial(
    run: Run, start: Start, spec_file: SpecFile, tmp_path: Path, wandb_server: Wandb
) -> None:
    """Through Ray workers that log stacks of two to the loopback server, killed in the middle."""
    parameters = {**LONG_EPOCH["parameters"], "model": {"value": "resnet8"}, "batch_size": {"value": 256},
                  "epochs": {"value": 8}}  # fmt: skip
    spec = spec_file(**{**LONG_EPOCH, "parameters": parameters, "launch": {"checkpoint_seconds": 0.1, "stack": 2}})
    store = tmp_path / "store"
    command = ["launch", spec, "--store", store, "--wandb", "online"]
    process = start(*command, isolated=False)
    wait_for(lambda: sum(r["epoch"] for r in records(store).values()) >= 8, 90, process)
    children = descendants(process.pid)
    kill_group(process)
    wait_for(lambda: not any(map(is_alive, children)), 20)
    answer = run(*command, preexec_fn=None)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    runs = wandb_server.dump()["runs"]
    assert set(runs) == set(records(store)) and len(runs) == 4
    for found in runs.values():
        assert [json.loads(line)["epoch"] for line in found["history"]] == list(range(1, 9))
        assert (found["complete"], found["exit_code"]) == (True, 0)
        assert found["attributes"]["tags"] == ["small"]
    assert {r["wandb"] for r in records(store).values()} == {"online"}


def test_a_failed_trial_is_named_with_its_error(
    run_here: Run, launch_here: Run, spec_file: SpecFile, tmp_path: Path
) -> None:
    spec, store = spec_file(seeds=1), tmp_path / "store"
    assert launch_here(spec, "--store", store).returncode == 0
    failed = sorted(records(store))[0]
    record = records(store)[failed] | {
        "outcome": "failed",
        "error": "Traceback ...\nRuntimeError: out of luck",
    }
    Store(str(store)).write_record(failed, record)
    again = run_here("launch", spec, "--store", store)
    assert again.returncode == 1
    assert f"failed: {failed}: RuntimeError: out of luck" in again.stderr
