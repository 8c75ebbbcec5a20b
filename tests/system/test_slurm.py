"""docker/slurm.sh on a real Slurm of two nodes: requeued, at the end of its time, and two jobs on the same nodes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.project import ROOT
from tests.support.results import histories, records
from tests.support.slurm_net import Slurm, missing
from tests.support.waiting import wait_for

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SCRIPT = ROOT / "docker/slurm.sh"
PATIENCE = 900.0  # seconds, on a busy machine


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    assert not missing(), (
        f"this test needs {', '.join(missing())}: apt-get install slurmctld slurmd slurm-client, as root"
    )
    with Slurm(tmp_path) as made:
        yield made


def spec_of(folder: Path, name: str, epochs: int) -> Path:
    values = {
        "task": "digits",
        "model": "mlp",
        "optimizer": "usam",
        "scheduler": "polyak",
        "batch_size": 16,
        "epochs": epochs,
    }
    parameters = {key: {"value": value} for key, value in values.items()} | {"rho": {"values": [0.1, 0.2, 0.3]}}
    path = folder / f"{name}.yaml"
    launch = {"stack": 2, "checkpoint_seconds": 0}
    path.write_text(json.dumps({"name": name, "parameters": parameters, "seeds": 2, "launch": launch}))
    return path


def epochs_of(store: Path) -> int:
    return sum(record["epoch"] for record in records(store).values()) if store.exists() else 0


def submit(slurm: Slurm, name: str, *options: str) -> str:
    """The number of a job with both nodes that launches the sweep into the Store `store-NAME`."""
    command = ("sbatch", "--parsable", "--nodes=2", f"--output={name}.out", *options, SCRIPT, f"{name}.yaml")
    return slurm.run(*command, "--store", slurm.folder / f"store-{name}", "--wandb", "disabled").stdout.strip()


def wait_over(slurm: Slurm, job: str) -> dict[str, str]:
    over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
    return wait_for(lambda: (found := slurm.job(job))["JobState"] in over and found, PATIENCE)


def assert_nothing_is_left(folder: Path) -> None:
    assert not list(folder.glob(".polysweep-*")), "the token"


@pytest.mark.long
def test_a_requeued_job_continues_what_is_left_and_runs_nothing_twice(slurm: Slurm, launch_here: Run) -> None:
    """Slurm sends SIGTERM to all that belongs to the job; a minute later nobody holds its trials any more."""
    spec, store = spec_of(slurm.folder, "small", 6), slurm.folder / "store-small"
    job = submit(slurm, "small", "--cpus-per-task=1", "--gpus-per-node=1")
    wait_for(lambda: epochs_of(store) >= 2, PATIENCE)
    token = slurm.folder / f".polysweep-{job}/token"
    assert (token.stat().st_mode & 0o777, token.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    slurm.run("scontrol", "requeue", job)
    wait_for(lambda: slurm.job(job)["JobState"] == "PENDING", PATIENCE)
    assert_nothing_is_left(slurm.folder)
    before = {trial_id: record["epoch"] for trial_id, record in records(store).items()}
    assert sum(before.values()) < 6 * 6
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # else Slurm waits for two minutes

    ended = wait_over(slurm, job)
    out = (slurm.folder / "small.out").read_text()
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("COMPLETED", "0:0", "1"), out
    assert out.count("2 of 2 nodes: 2 CPUs, 2 GPUs") == 2, out
    assert "small: 6 finished" in out
    for trial_id, record in records(store).items():
        starts = [session["from_epoch"] for session in record["sessions"]]
        assert record["outcome"] == "finished"
        stored = before.get(trial_id, 0)
        assert starts[-1] == (0 if stored == 6 else stored) and set(starts) <= {0, stored}, "no epoch twice"
    assert_nothing_is_left(slurm.folder)
    assert launch_here(spec, "--store", slurm.folder / "undisturbed").returncode == 0
    assert histories(store) == histories(slurm.folder / "undisturbed")


@pytest.mark.long
def test_before_its_time_is_up_a_job_stops_in_order_and_requeues_itself(slurm: Slurm) -> None:
    spec_of(slurm.folder, "small", 30)
    store = slurm.folder / "store-small"
    job = submit(slurm, "small", "--cpus-per-task=2")
    wait_for(lambda: epochs_of(store) >= 2, PATIENCE)
    slurm.run("scancel", "--batch", "--signal=USR1", job)  # as --signal=B:USR1@120 does
    wait_for(lambda: slurm.job(job)["JobState"] == "PENDING", PATIENCE)
    out = (slurm.folder / "small.out").read_text()
    assert "interrupted: saving completed epochs before exiting" in out and re.search(r"\d left: launch again", out), (
        out
    )
    assert slurm.job(job)["Restarts"] == "1"
    slurm.run("scancel", job)
    assert wait_over(slurm, job)["JobState"] == "CANCELLED"


@pytest.mark.long
def test_two_jobs_share_their_nodes_and_each_ends_with_its_launchs_exit_code(slurm: Slurm) -> None:
    spec_of(slurm.folder, "one", 2)
    spec_of(slurm.folder, "other", 2).write_text("parameters: 3\n")
    one, other = (submit(slurm, name, "--cpus-per-task=1") for name in ("one", "other"))
    assert wait_over(slurm, one)["ExitCode"] == "0:0"
    assert wait_over(slurm, other)["ExitCode"] == "2:0"
    outs = [(slurm.folder / f"{name}.out").read_text() for name in ("one", "other")]
    assert "one: 6 finished" in outs[0] and "other.yaml:1: " in outs[1]
    assert all("2 of 2 nodes: 2 CPUs, 0 GPUs" in out for out in outs), "not four: each has a Ray of its own"
    times = [slurm.job(job) for job in (one, other)]
    assert max(job["StartTime"] for job in times) < min(job["EndTime"] for job in times), "at the same time"
    assert_nothing_is_left(slurm.folder)


def test_the_script_is_sound() -> None:
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0
    text = SCRIPT.read_text()
    assert max(map(len, text.splitlines())) <= 120
    assert not re.search(r"--(port|dashboard-port|ray-client-server-port)=[1-9]|ray stop", text), (
        "a port of another job"
    )


def test_outside_of_slurm_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False, env={"PATH": "/bin"}
    )
    assert done.returncode != 0 and "start this script with sbatch" in done.stderr
    assert not list(tmp_path.iterdir())
