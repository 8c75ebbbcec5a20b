"""Launches of one sweep after the other, with all that is watched while they run and checked when a sweep has ended.

A launch is a black box here: its command line, its processes, the files of its Store, and what its servers have seen.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.support.chaos_evidence import Launch, Tally, Witness
from tests.support.fault_proxy import FaultProxy
from tests.support.loopback_wandb import Wandb
from tests.support.processes import Household, kill_group
from tests.support.project import POLYSWEEP, ROOT
from tests.support.results import histories, records
from tests.support.waiting import wait_for

EPOCHS = 12
TRIALS = 24
WIDTH = 2
WORKER = "Trainable"  # in the title that Ray gives its process
API_KEY = "0123456789" * 4
HANG_SECONDS = 240.0  # nothing takes as long


def trial_parameters() -> dict[str, Any]:
    """24 trials of 12 epochs in stacks of two: about 30 s of two cores."""
    parameters = {
        "task": {"value": "digits"},
        "model": {"value": "resnet8"},
        "optimizer": {"value": "usam"},
        "rho": {"values": [0.05, 0.1, 0.15, 0.2, 0.25, 0.3]},
        "batch_size": {"value": 256},
        "epochs": {"value": EPOCHS},
    }
    return {"parameters": parameters, "variants": [{"scheduler": {"value": "polyak"}}], "tuned": [], "seeds": 4,
            "launch": {"stack": WIDTH, "checkpoint_seconds": 0.1}}  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """A sweep that nobody has disturbed."""

    histories: Mapping[str, list[dict[str, Any]]]
    table: str


@contextmanager
def serving(folder: Path, server: str, *options: str) -> Iterator[int]:
    """A server of tests/support that writes its port into a file; yields the port."""
    port_file = folder / f"port-{uuid.uuid4().hex}"
    command = [sys.executable, "-m", f"tests.support.{server}", "--port-file", port_file, *options]
    process = subprocess.Popen(list(map(str, command)), cwd=ROOT)
    try:
        wait_for(port_file.exists, 60)
        yield int(port_file.read_text())
    finally:
        process.kill()
        process.wait()


@dataclass
class Sweeps:
    """One sweep after the other: `ensure_launch` starts what is left, `finish` brings the last one to its end."""

    folder: Path
    spec: Path
    reference: Reference
    tally: Tally
    seed: int
    store_of: Callable[[int], str]  # the Store of the n-th sweep
    look_seconds: float = 0.3
    store_proxy: FaultProxy | None = None  # before the object store
    launch_environment: Mapping[str, str] = field(default_factory=dict)
    mode: ClassVar[str] = "online"  # of W&B

    def __enter__(self) -> Self:
        self.random = random.Random(self.seed)
        self.began = time.monotonic()
        self.sweeps = 0
        self.launches = 0
        self.process: subprocess.Popen[Any] | None = None
        self.launch: Launch | None = None
        self.codes: set[int] | None = {0}  # with which the launch may end; None: any
        self.last = "nothing"  # the latest disturbance
        self._parts = ExitStack()
        self.witness = self._parts.enter_context(Witness(self.tally, self.look_seconds))
        self._sweep = ExitStack()
        self._begin_sweep()
        return self

    def __exit__(self, *_: object) -> None:
        if self.launch is not None:
            self.launch.household.kill()
        self._sweep.close()
        self._parts.close()

    def finish(self) -> None:
        """Let the sweep come to its end, and look at what it has left."""
        for _ in range(5):
            if self.all_done():
                break
            self.ensure_launch()
            self.wait_to_the_end("undisturbed")
        self._end_sweep()
        self.witness.settle()

    def ensure_launch(self) -> bool:
        """Start one unless one runs; when the sweep is over, another sweep. Returns whether it is new."""
        if self.is_running():
            return False
        self.note_end()
        if self.all_done():
            self._end_sweep()
            self._begin_sweep()
        self.launches += 1
        mark = f"CHAOS_LAUNCH={uuid.uuid4().hex}"
        output = self.folder / f"launch-{self.launches}.txt"
        command = [str(POLYSWEEP), "launch", str(self.spec), "--store", self.store, "--wandb", self.mode]
        self.process = self.start(command, output, dict([mark.split("=")]))
        self.codes = {0}
        self.log(f"{output.name} starts")
        self.launch = Launch(self.process.pid, Household(self.process.pid, mark), output)
        self.witness.watch(self.launch)
        return True

    def start(self, command: list[str], output: Path, environment: dict[str, str]) -> subprocess.Popen[Any]:
        """The process of a launch, in a group of its own."""
        servers = {"WANDB_BASE_URL": self.wandb_proxy.url, "WANDB_API_KEY": API_KEY, **self.launch_environment}
        with output.open("wb") as file:
            return subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
                env={**os.environ, **servers, **environment},
            )  # fmt: skip

    def workers(self) -> list[int]:
        """Processes that train, or are about to."""
        return [] if self.launch is None else self.launch.household.alive(WORKER)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def note_end(self) -> None:
        """Once for every launch: how it ended."""
        if self.process is None or self.launch is None:
            return
        code, said = self.process.wait(), self.launch.said()
        self.launch.ended = time.monotonic()
        allowed = self.codes is None or code in self.codes or (code == 0 and self.all_done())
        last = f"{self.launch.output.name} ({self.last}): exit {code}: {said}"
        self.tally.expect(f"exit code {code} after {self.last}", allowed, last)
        self.tally.expect(f"a traceback after {self.last}", "Traceback (most" not in self.launch.everything(), last)
        self.log(f"{self.launch.output.name} has ended with {code}")
        self.process = self.launch = None

    def log(self, text: str) -> None:
        """What happened when, for whoever looks into a failure."""
        with (self.folder / "events.txt").open("a") as file:
            file.write(f"{time.monotonic() - self.began:7.1f} s, {self.witness.epochs():4} epochs: {text}\n")

    def wait_for_end(self, event: str, seconds: float) -> None:
        """Of the launch that runs; one that has not ended after so long is killed, and that is a problem."""
        assert self.process is not None and self.launch is not None
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._hangs(event)
        self.note_end()

    def wait_to_the_end(self, event: str) -> None:
        """Of the launch that runs, for as long as epochs are counted; one that stands still hangs."""
        epochs, since = -1, time.monotonic()
        while self.is_running() and time.monotonic() - since < HANG_SECONDS:
            if self.witness.epochs() != epochs:
                epochs, since = self.witness.epochs(), time.monotonic()
            time.sleep(0.1)
        if self.is_running():
            self._hangs(event)
        self.note_end()

    def _hangs(self, event: str) -> None:
        assert self.launch is not None
        self.tally.problem(f"a launch hangs after {event}", f"{self.launch.output.name}: {self.launch.said()}")
        self.launch.household.kill()
        self.codes = None

    def trains(self) -> bool:
        """Wait until the launch has workers; False where it has ended before."""
        assert self.launch is not None
        deadline = time.monotonic() + HANG_SECONDS
        while self.is_running():
            if self.workers():
                return True
            if time.monotonic() > deadline:
                self.wait_for_end(f"{self.last}, without workers", 0)
                return False
            time.sleep(0.05)
        return False

    def _begin_sweep(self) -> None:
        self.sweeps += 1
        self.store = self.store_of(self.sweeps)
        self.witness.turn_to(self.store)
        if self.mode != "online":
            return
        port = self._sweep.enter_context(serving(self.folder, "wandb_server"))
        self.server = Wandb(port)
        upstream = ("--upstream", self.server.url)
        self.wandb_proxy = FaultProxy(self._sweep.enter_context(serving(self.folder, "fault_proxy", *upstream)))

    def all_done(self) -> bool:
        """Whether every trial has finished, as its record says."""
        found = records(self.store).values()
        return sum(isinstance(record, dict) and record["outcome"] == "finished" for record in found) == TRIALS

    def _end_sweep(self) -> None:
        """What an undisturbed sweep has, this one has, bit by bit, and the server has it once."""
        self.witness.look()
        self.witness.turn_to(None)
        found, same = histories(self.store), self.reference.histories
        differ = sorted(trial_id for trial_id in {*found, *same} if found.get(trial_id) != same.get(trial_id))
        self.tally.expect("histories differ", not differ, f"{self.store}: {differ}")
        for trial_id, rows in found.items():
            epochs = [row["epoch"] for row in rows]
            self.tally.expect("an epoch twice", len(epochs) == len(set(epochs)), f"{trial_id}: {epochs}")
        table = self._command("table", self.spec.stem, "--store", self.store)
        self.tally.expect("tables differ", table.stdout == self.reference.table, table.stdout + table.stderr)
        if self.mode == "online":
            self._check_server(found)
        self._sweep.close()
        if not self.store.startswith("s3"):
            shutil.rmtree(self.store)

    def _check_server(self, found: Mapping[str, Any]) -> None:
        synced = self._command("sync", self.spec.stem, "--store", self.store)
        self.tally.expect("sync fails", synced.returncode == 0, synced.stdout + synced.stderr)
        dump = self.server.dump()
        named = [name for names in dump["projects"].values() for name in names]
        self.tally.expect("runs of W&B", sorted(named) == sorted(found), f"{len(named)} runs, {len(found)} trials")
        for name, run in dump["runs"].items():
            epochs = [json.loads(line)["epoch"] for line in run["history"]]
            whole = epochs == list(range(1, EPOCHS + 1)) and (run["state"], run["exit_code"]) == ("finished", 0)
            self.tally.expect("a run of W&B is not whole", whole, f"{name}: {run['state']}, epochs {epochs}")

    def _command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command beside the launches, with healthy servers; one that hangs is a problem."""
        server = {"WANDB_BASE_URL": self.server.url, "WANDB_API_KEY": API_KEY} if self.mode == "online" else {}
        process = subprocess.Popen(
            [str(POLYSWEEP), *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, **server},
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=HANG_SECONDS)
        except subprocess.TimeoutExpired:
            kill_group(process)
            out, err = process.communicate()
            self.tally.problem(f"{arguments[0]} hangs", out + err)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)
