"""Disturbances of a running sweep at instants that a seed draws: killed, suspended, without space, without servers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.chaos_sweeps import EPOCHS, HANG_SECONDS, WIDTH, Sweeps
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.waiting import wait_for

CLIENT = "wandb-core"
SERVERS = {"raylet": "raylet/raylet", "gcs_server": "gcs_server", "dashboard_agent": "ray::DashboardAgent",
           "runtime_env_agent": "ray::RuntimeEnvAgent"}  # fmt: skip
SIGNALS = {"KILL": signal.SIGKILL, "INT": signal.SIGINT, "TERM": signal.SIGTERM}
FAULTS = {
    "429": Fault(status=429), "500": Fault(status=500), "503": Fault(status=503), "hangs": Fault(hang=True),
    "resets": Fault(reset=True), "slow": Fault(delay=0.7),
}  # fmt: skip
START_SECONDS = 10.0  # about as long as a launch takes to its first epoch
SIGNAL_SECONDS = 45.0  # after a signal a launch has ended; documented are ten seconds, on an idle machine
RAY_SECONDS = 90.0  # after the death of one of Ray's servers a launch has ended or goes on; documented is a minute
VAIN_SECONDS = 60.0  # for so long something to strike is looked for


@contextmanager
def small_file_system(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own, so that it can be full."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class Chaos(Sweeps):
    """`live` takes the disturbances of one launch."""

    def live(self, events: Sequence[str], early: bool = False) -> None:
        """The disturbances of one launch, of which the last may end it; an `early` one strikes while it starts."""
        waiting, since = list(events), time.monotonic()
        while waiting:
            is_new = self.ensure_launch()
            if early and is_new:
                time.sleep(self.random.uniform(0.3, START_SECONDS))
            elif self.trains():
                time.sleep(self.random.uniform(0.1, 1.2))
            else:
                since = time.monotonic()  # the sweep or the launch was over
            if self.is_running() and self._happens(waiting[0]):
                waiting.pop(0)
                since = time.monotonic()
            elif time.monotonic() - since > VAIN_SECONDS:
                self._give_up(waiting.pop(0))
                since = time.monotonic()

    def _give_up(self, event: str) -> None:
        """Nothing was there to strike: nobody asks a W&B that was given up, but Ray's servers must be there."""
        self.tally.missed[event] += 1
        if event.startswith("ray") and self.is_running():
            self.wait_for_end(f"{self.last}, without {event}", 0)

    def suspend_and_take_over(self) -> None:
        """A launch is suspended with all its processes; another one takes over its trials, and then it goes on."""
        self.ensure_launch()
        wait_for(lambda: self.witness.epochs() >= 4, HANG_SECONDS, self.process)
        first, process, started = self.launch, self.process, time.monotonic()
        assert first is not None
        first.household.look()
        first.household.signal(signal.SIGSTOP)
        self.log(f"{first.output.name} is suspended")
        self.process = self.launch = None
        self.ensure_launch()
        self.last = "another launch was suspended"
        self.wait_to_the_end(self.last)
        self.tally.expect("trials of a suspended launch are left", self.all_done(), first.said())
        first.household.signal(signal.SIGCONT)
        self.tally.add("launch suspended", time.monotonic() - started)
        self.process, self.launch, self.codes, self.last = process, first, {0}, "being suspended"
        self.wait_to_the_end(self.last)

    def _happens(self, event: str) -> bool:
        """One disturbance; False where there was nothing to strike."""
        whom, _, how = event.partition(" ")
        started = time.monotonic()
        if not getattr(self, f"_{whom}")(how):
            return False
        self.last = event
        self.tally.add(event, time.monotonic() - started)
        self.log(f"{event}, {time.monotonic() - started:.1f} s")
        return True

    def _worker(self, how: str) -> bool:
        return self._strike(self.workers(), how)

    def _client(self, how: str) -> bool:
        """W&B's own process beside a worker."""
        assert self.launch is not None
        return self._strike(self.launch.household.alive(CLIENT), how)

    def _strike(self, found: list[int], how: str) -> bool:
        """One of these processes."""
        if not found:
            return False
        pid = self.random.choice(found)
        with suppress(ProcessLookupError):
            if how == "suspended":
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.random.uniform(0.3, 2.5))
                os.kill(pid, signal.SIGCONT)
            else:
                os.kill(pid, SIGNALS[how])
        return True

    def _ray(self, how: str) -> bool:
        """One of Ray's servers dies: the launch ends in words, or goes on."""
        assert self.launch is not None and self.process is not None
        found = self.launch.household.alive(SERVERS[how])
        if not found:
            return False
        self.codes = {0, *range(2, 128)}  # where nothing can go on, the next launch does; 1 says that trials failed
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + RAY_SECONDS
        before = self.witness.epochs() + 2 * EPOCHS * WIDTH  # more than what is being trained: it goes on
        while self.is_running() and self.witness.epochs() <= before and not self.all_done():
            if time.monotonic() > deadline:
                self.last = f"ray {how}"
                self.wait_for_end(self.last, 0)
                break
            time.sleep(0.1)
        return True

    def _driver(self, how: str) -> bool:
        assert self.process is not None
        return self._end_by(os.kill, how)

    def _group(self, how: str) -> bool:
        return self._end_by(os.killpg, how)

    def _end_by(self, kill: Callable[[int, int], None], how: str) -> bool:
        assert self.process is not None
        number = SIGNALS[how]
        self.codes = {128 + number, -number}  # the latter before Python runs; a shell shows both as the former
        with suppress(ProcessLookupError):
            kill(self.process.pid, number)
        event = f"{'driver' if kill is os.kill else 'group'} {how}"
        self.last = event
        self.wait_for_end(event, SIGNAL_SECONDS)
        return True

    def _disk(self, _how: str) -> bool:
        """Full for a while, then free again."""
        filler = Path(self.store).parent / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        time.sleep(self.random.uniform(0.5, 3))
        filler.unlink()
        return True

    def _wandb(self, how: str) -> bool:
        return self._fails(self.wandb_proxy, how)

    def _s3(self, how: str) -> bool:
        assert self.store_proxy is not None
        return self._fails(self.store_proxy, how)

    def _fails(self, proxy: FaultProxy, how: str) -> bool:
        """A server that does not answer as it should, until that has been met; False where nobody asks it."""
        fault = FAULTS[how]
        drawn = {"every": self.random.choice([1, 1, 2])}
        if how in ("resets", "hangs"):
            drawn["applied"] = self.random.random() < 0.5
        proxy.set(Fault(**{**vars(fault), **drawn}))
        enough = time.monotonic() + self.random.uniform(0.5, 3)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not (time.monotonic() > enough and proxy.hits()):
            time.sleep(0.1)
        return proxy.set(Fault()) > 0
