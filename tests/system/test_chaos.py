"""Whatever is killed, full or out of reach: the same command continues, and the sweep ends as if undisturbed."""

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
from typing import Any

import pytest

from tests.support.disks import small_disk as small_disk
from tests.support.loopback_wandb import Wandb
from tests.support.processes import descendants, is_alive, kill_group
from tests.support.results import histories, records
from tests.support.waiting import wait_for

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]
SpecFile = Callable[..., Path]
EPOCHS = 10


def chaos_spec(spec_file: SpecFile, radii: int, seeds: int) -> Path:
    """`radii` x `seeds` trials of ten epochs in stacks of two."""
    parameters = {
        "task": {"value": "digits"},
        "model": {"value": "resnet8"},
        "optimizer": {"value": "usam"},
        "rho": {"values": [0.05 * (k + 1) for k in range(radii)]},
        "batch_size": {"value": 256},
        "epochs": {"value": EPOCHS},
    }
    return spec_file(parameters=parameters, variants=[{"scheduler": {"value": "polyak"}}], tuned=[], seeds=seeds,
                     launch={"stack": 2, "checkpoint_seconds": 0.1})  # fmt: skip


class Chaos:
    """A launch that is disturbed, and what the Store said whenever it was."""

    def __init__(self, command: list[Any], store: Path, start: Start, server: Wandb, seed: int) -> None:
        self.command = command
        self.store = store
        self.start = start
        self.server = server
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.process: subprocess.Popen[str] | None = None
        self.ended: dict[str, float] = {}
        self.lost = 0

    def epochs(self) -> dict[str, int]:
        """By trial, the epochs that its record counts."""
        return {trial_id: record["epoch"] for trial_id, record in records(self.store).items()}

    def all_done(self, trials: int) -> bool:
        return sum(r["outcome"] == "finished" for r in records(self.store).values()) == trials

    def go_on(self, more: int) -> None:
        """Launch unless that runs, and let it train so many epochs."""
        if self.process is None or self.process.poll() is not None:
            self.process = self.start(*self.command, isolated=False)
            self.counts["launches"] += 1
        before = sum(self.epochs().values())
        process = self.process
        wait_for(lambda: sum(self.epochs().values()) >= before + more or process.poll() is not None, 600)
        # A finished trial is never touched again, and no epoch that was stored is lost.
        for trial_id, record in records(self.store).items():
            if record["outcome"] == "finished":
                assert self.ended.setdefault(trial_id, record["ended"]) == record["ended"]

    def happens(self, event: str) -> None:
        """One disturbance."""
        assert self.process is not None
        self.counts[event] += 1
        before = self.epochs()
        getattr(self, event)()
        self.lost += sum(max(0, epoch - self.epochs()[trial_id]) for trial_id, epoch in before.items())

    def children(self, name: str) -> list[int]:
        """The launch's living processes of that name."""
        assert self.process is not None
        found = []
        for pid in descendants(self.process.pid):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if name in command:
                found.append(pid)
        return found

    def worker_dies(self) -> None:
        found = self.children("Trainable")  # Tune wraps the class: the process is ray::ResourceTrainable.train
        assert self.process is not None
        assert found or self.process.poll() is not None, "there is none to kill"
        for pid in found[:1]:
            os.kill(pid, signal.SIGKILL)

    def node_dies(self) -> None:
        """The node of a Ray of its own is the raylet; without it the launch ends, and is launched again."""
        for pid in self.children("raylet/raylet"):
            os.kill(pid, signal.SIGKILL)
        self.everything_dies()

    def driver_dies(self) -> None:
        """Only the driver: its Ray and its workers find out by themselves, or not yet when the next launch comes."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def everything_dies(self) -> None:
        assert self.process is not None
        children = descendants(self.process.pid)
        kill_group(self.process)
        wait_for(lambda: not any(map(is_alive, children)), 60)

    def disk_is_full(self) -> None:
        filler = self.store.parent / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
        time.sleep(3)  # it is the time for which writes fail
        filler.unlink()

    def server_hangs(self) -> None:
        self.server.hang()

    def server_fails(self) -> None:
        self.server.fail(500)

    def server_comes_back(self) -> None:
        self.server.recover()


@pytest.fixture
def survive(
    run: Run, run_here: Run, launch_here: Run, start: Start, spec_file: SpecFile, small_disk: Path, tmp_path: Path,
    wandb_server: Wandb,
) -> Callable[[list[str], tuple[int, int], int], None]:  # fmt: skip
    """Launch `radii` x `seeds` trials through the events, and compare with a launch that nothing disturbs."""

    def survive_all(events: list[str], trials: tuple[int, int], seed: int) -> None:
        spec, store = chaos_spec(spec_file, *trials), small_disk / "store"
        count = trials[0] * trials[1]
        chaos = Chaos(["launch", spec, "--store", store, "--wandb", "online"], store, start, wandb_server, seed)
        for event in events:
            chaos.go_on(chaos.random.randrange(2, 2 * count // len(events) * EPOCHS // 3 + 3))
            chaos.happens(event)
        wandb_server.recover()
        chaos.go_on(0)
        assert chaos.process is not None
        last = chaos.process.communicate(timeout=900)[0]
        if not chaos.all_done(count):
            answer = run(*chaos.command, preexec_fn=None, timeout=900)
            last = answer.stdout + answer.stderr
        assert chaos.all_done(count), last

        undisturbed = tmp_path / "undisturbed"
        answer = launch_here(spec, "--store", undisturbed)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        found = histories(store)
        assert len(found) == count
        doubles = sum(len(rows) - len({row["epoch"] for row in rows}) for rows in found.values())
        assert found == histories(undisturbed)
        table, expected = (run_here("table", "small", "--store", place).stdout for place in (store, undisturbed))
        assert table == expected

        synced = run("sync", "small", "--store", store, preexec_fn=None, timeout=900)
        assert synced.returncode == 0, synced.stdout + synced.stderr
        runs = wandb_server.dump()["runs"]
        assert set(runs) == set(found)
        for mirrored in runs.values():
            assert [json.loads(line)["epoch"] for line in mirrored["history"]] == list(range(1, EPOCHS + 1))
            assert (mirrored["state"], mirrored["exit_code"]) == ("finished", 0)
        upserts = {name: mirrored["upserts"] for name, mirrored in runs.items()}
        again = run("sync", "small", "--store", store, preexec_fn=None)
        assert again.returncode == 0 and f"{count} W&B runs were complete, 0 uploaded, 0 tagged" in again.stdout
        assert {name: mirrored["upserts"] for name, mirrored in wandb_server.dump()["runs"].items()} == upserts
        kills = sum(n for event, n in chaos.counts.items() if event.endswith("dies"))
        lost = f"{chaos.lost} epochs lost, {doubles} duplicates"
        print(f"{count} trials, {dict(chaos.counts)}: {kills} kills survived, {lost}")
        assert (chaos.lost, doubles) == (0, 0)

    return survive_all


def test_a_sweep_survives_a_worker_a_driver_a_full_disk_and_a_failing_server(survive: Callable[..., None]) -> None:
    survive(["worker_dies", "server_fails", "disk_is_full", "driver_dies"], (2, 3), 5)


@pytest.mark.long
def test_forty_eight_trials_survive_everything_at_random_instants(survive: Callable[..., None]) -> None:
    events = ["worker_dies", "server_hangs", "driver_dies", "disk_is_full", "everything_dies", "server_comes_back",
              "worker_dies", "node_dies", "server_fails", "driver_dies", "disk_is_full", "worker_dies",
              "everything_dies", "server_comes_back", "driver_dies", "node_dies"]  # fmt: skip
    survive(events, (8, 6), 11)


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
def test_two_launches_of_one_sweep_share_its_trials(
    run: Run, start: Start, spec_file: SpecFile, tmp_path: Path, times: int
) -> None:
    """No trial is run by both, and every trial is run; the later one says what the other holds."""
    spec = chaos_spec(spec_file, 2, 4)
    for round_ in range(times):
        store = tmp_path / f"store{round_}"
        first = start("launch", spec, "--store", store)
        wait_for(lambda store=store: len(records(store)) >= 2, 60, first)
        second = run("launch", spec, "--store", store)
        said = first.communicate(timeout=120)[0]
        assert (first.returncode, second.returncode) == (0, 0), said + second.stdout + second.stderr
        assert (
            f"held by {os.uname().nodename} (pid {first.pid}" in second.stdout or "trials are held by" in second.stdout
        )
        found = records(store)
        assert len(found) == 8 and {r["outcome"] for r in found.values()} == {"finished"}
        assert all([s["from_epoch"] for s in r["sessions"]] == [0] for r in found.values()), "nothing was run twice"
        assert len({s["process"] for r in found.values() for s in r["sessions"]}) >= 2


@pytest.mark.long  # chaos at scale has an S3 that hangs, too
def test_a_sweep_in_an_object_store_outlasts_its_silence(
    run: Run, launch_here: Run, start: Start, spec_file: SpecFile, tmp_path: Path, s3: str, s3_server: tuple[str, int]
) -> None:
    """The endpoint is stopped in the middle and answers again; the sweep ends as it does on local files."""
    spec, store = chaos_spec(spec_file, 2, 2), f"{s3}/store"
    process = start("launch", spec, "--store", store, "--wandb", "offline", isolated=False)
    wait_for(lambda: sum(r["epoch"] for r in records(store).values()) >= 8, 90, process)
    os.kill(s3_server[1], signal.SIGSTOP)
    time.sleep(8)  # the silence itself: longer than the client's time to connect
    os.kill(s3_server[1], signal.SIGCONT)
    said = process.communicate(timeout=240)[0]
    assert process.returncode == 0, said
    assert "small: 4 finished" in said and "offline W&B runs are written to" in said
    assert len(list((tmp_path / "polysweep-wandb").glob("offline-run-*"))) == 4
    again = run("launch", spec, "--store", store, preexec_fn=None)
    assert again.returncode == 0 and "nothing to start" in again.stdout
    assert launch_here(spec, "--store", tmp_path / "local").returncode == 0
    assert histories(store) == histories(tmp_path / "local")
