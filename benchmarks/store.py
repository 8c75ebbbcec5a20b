"""What the Store costs a stack of K trials: calls and seconds of one save of every row, and of one heartbeat.

A save is history, checkpoint and record of K trials after an epoch; a heartbeat shows that the K trials have a living
holder. Counted from outside, while `StackRun` trains a tiny stack: on local files what Python asks of the operating
system below the Store's folder, on S3 the requests of the client to a moto server on loopback. Counts and seconds are
medians of the rounds; seconds go from the first call to the last, so that training is not in them.

    python benchmarks/store.py [--widths 1 9 64] [--rounds 5] [--places local s3] [--folder DIR]
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from polysweep.sweeps.job import Job
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.config import TrialConfig

# What of the insides this script knows: where the time between two heartbeats stands.
HEARTBEAT = ("polysweep.sweeps.worker.heartbeat", "HEARTBEAT_SECONDS")

BEAT_SECONDS = 2.0  # what it is set to while heartbeats are counted; calls less than half of it apart are one heartbeat
MOTO = Path(sys.prefix) / "moto/bin/moto_server"
CALLS = {
    "local": ("fsync", "list", "read", "write", "link", "rename", "remove"),
    "s3": ("ListObjectsV2", "GetObject", "HeadObject", "PutObject", "CopyObject", "DeleteObject"),
}
AUDITED = {"os.listdir": "list", "os.scandir": "list", "os.link": "link", "os.rename": "rename", "os.remove": "remove"}


@dataclass(frozen=True)
class Call:
    """One call to the file system or one request: its kind, and when it began and ended (seconds)."""

    kind: str
    began: float
    ended: float


class Counted:
    """The calls since `restart`, of all threads."""

    def __init__(self) -> None:
        self.root = ""  # the local folder whose files count
        self.calls: list[Call] = []
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Forget all calls."""
        with self._lock:
            self.calls = []

    def add(self, kind: str, began: float) -> None:
        """A call that ends now."""
        with self._lock:
            self.calls.append(Call(kind, began, time.perf_counter()))

    def install(self) -> None:
        """Count from now on: what Python audits, `os.fsync`, and the requests of the S3 client."""
        sys.addaudithook(self._audit)
        os.fsync = self._timed(os.fsync, "fsync")
        import aiobotocore.client

        send = aiobotocore.client.AioBaseClient._make_api_call

        async def counted(client: Any, operation: str, parameters: Any) -> Any:
            began = time.perf_counter()
            try:
                return await send(client, operation, parameters)
            finally:
                self.add(operation, began)

        aiobotocore.client.AioBaseClient._make_api_call = counted

    def _timed(self, call: Callable[[int], None], kind: str) -> Callable[[int], None]:
        def timed(file: int) -> None:
            began = time.perf_counter()
            call(file)
            if self.root:
                self.add(kind, began)

        return timed

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.root or event not in ("open", *AUDITED):
            return
        if not arguments or not str(arguments[0]).startswith(self.root):
            return
        if event == "open":
            _, mode, flags = arguments
            if mode is None and not flags & os.O_NONBLOCK:  # os.open of a folder, for its fsync; not `read_plain_file`
                return
            self.add("read" if mode is None or mode.startswith("r") else "write", time.perf_counter())
        else:
            self.add(AUDITED[event], time.perf_counter())


def job(store: str, width: int, epochs: int) -> Job:
    """A stack whose epochs cost next to nothing, and which saves after each."""
    fixed = {"task": "digits", "model": "mlp", "optimizer": "usam", "scheduler": "polyak", "rho": 0.1,
             "batch_size": 1437, "epochs": epochs}  # fmt: skip
    configs = tuple(TrialConfig.parse({**fixed, "seed": seed}).canonical() for seed in range(width))
    return Job(store, configs, width, checkpoint_seconds=0.0)


def measured(counted: Counted, store: str, width: int, rounds: int) -> dict[str, list[list[Call]]]:
    """By what was done, the calls of each time: the start of the stack, its saves, its heartbeats."""
    module, name = HEARTBEAT
    inside = importlib.import_module(module)
    usual = getattr(inside, name)
    calls: dict[str, list[list[Call]]] = {"start": [], "save": [], "heartbeat": []}
    setattr(inside, name, 3600.0)
    with closing_later(StackRun(job(store, width, rounds + 10))) as run:
        for number in range(rounds + 2):
            counted.restart()
            assert run.advance() is not None
            # The first epoch comes with the start, the second one is the first to keep a checkpoint before it.
            kind = {0: "start", 1: ""}.get(number, "save")
            calls.setdefault(kind, []).append(counted.calls)
    setattr(inside, name, BEAT_SECONDS)
    with closing_later(StackRun(job(store, width, rounds + 10))) as run:
        assert run.advance() is not None
        counted.restart()
        calls["heartbeat"] = wait_for_bursts(counted, rounds)
    setattr(inside, name, usual)
    calls.pop("")
    return calls


@contextmanager
def closing_later(run: StackRun) -> Iterator[StackRun]:
    """A run that is closed whatever happens."""
    try:
        yield run
    finally:
        run.close()


def wait_for_bursts(counted: Counted, rounds: int) -> list[list[Call]]:
    """The calls of so many heartbeats, told apart by the silence between them."""
    deadline = time.monotonic() + (rounds + 2) * (BEAT_SECONDS + 60)
    while True:
        time.sleep(BEAT_SECONDS / 4)
        bursts: list[list[Call]] = []
        for call in list(counted.calls):
            if not bursts or call.began - bursts[-1][-1].ended > BEAT_SECONDS / 2:
                bursts.append([])
            bursts[-1].append(call)
        if len(bursts) > rounds:  # the last one may not be over
            return bursts[:rounds]
        if time.monotonic() > deadline:
            raise SystemExit(f"store.py: no heartbeats; is {'.'.join(HEARTBEAT)} still the time between two of them?")


def row(place: str, width: int, what: str, times: Sequence[Sequence[Call]]) -> list[str]:
    """A line of the table: median counts, median seconds, least and most."""
    kinds = [Counter(call.kind for call in calls) for calls in times]
    counts = [statistics.median(count[kind] for count in kinds) for kind in CALLS[place]]
    other = statistics.median(sum(n for kind, n in count.items() if kind not in CALLS[place]) for count in kinds)
    seconds = [calls[-1].ended - min(call.began for call in calls) if calls else 0.0 for calls in times]
    spread = f"{statistics.median(seconds):.4f} ({min(seconds):.4f} to {max(seconds):.4f})"
    return [str(width), what, *(f"{count:g}" for count in [*counts, other]), spread]


@contextmanager
def moto(folder: Path) -> Iterator[int]:
    """An S3 server on loopback with an empty bucket `benchmark`; the environment points at it. Yields its pid."""
    if not MOTO.exists():
        raise SystemExit(f"store.py: {MOTO} is missing; `make check` installs it, `--places local` needs none")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "moto.txt").open("wb") as log:
        process = subprocess.Popen([MOTO, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit(f"store.py: the S3 server does not start: {(folder / 'moto.txt').read_text()}")
            time.sleep(0.1)
        os.environ.pop("AWS_CA_BUNDLE", None)
        os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "test",
                       "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
        import s3fs

        s3fs.S3FileSystem(skip_instance_cache=True).mkdir("benchmark")
        yield process.pid
    finally:
        process.kill()
        process.wait()


def table_of(place: str, store: str, counted: Counted, widths: Sequence[int], rounds: int) -> Table:
    """All widths on one Store."""
    table = Table(title=f"{place}: calls and seconds of a stack of K, median of {rounds}")
    for column in ("K", "what", *CALLS[place], "other", "seconds (least to most)"):
        table.add_column(column, justify="right" if column != "what" else "left")
    for width in widths:
        numbers = measured(counted, f"{store}/{width}", width, rounds)
        for what, times in numbers.items():
            table.add_row(*row(place, width, what, times))
    return table


def main() -> None:
    """Print a table for each place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 9, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--places", nargs="+", choices=list(CALLS), default=list(CALLS))
    parser.add_argument(
        "--folder", type=Path, help="on whose file system the local Store is; a temporary one if absent"
    )
    options = parser.parse_args()
    logging.getLogger("polysweep").setLevel(logging.ERROR)
    counted = Counted()
    counted.install()
    console = Console(width=150)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if "local" in options.places:
            counted.root = folder
            console.print(table_of("local", folder, counted, options.widths, options.rounds))
            counted.root = ""
        if "s3" in options.places:
            with moto(Path(folder)):
                console.print(table_of("s3", "s3://benchmark", counted, options.widths, options.rounds))


if __name__ == "__main__":
    main()
