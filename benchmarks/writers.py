"""What workers do to a Store, and what reads it meanwhile, for `scale.py`: the real calls without any training."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from store import Counted

from polysweep.sweeps.job import Job
from polysweep.sweeps.planning.status import status_of
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.checking import json_bytes
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import complete
from polysweep.sweeps.worker.trial_run import TrialRun
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.history import HISTORY_COLUMNS

ROW = {**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": 1, "step": 1, "partial": False}
THREADS = 4


class Worker:
    """What one worker does to the Store."""

    def __init__(self, root: str, configs: Iterable[Mapping[str, Any]]) -> None:
        import torch

        self.store, self.configs = Store(root), iter(configs)
        self.job = Job(root, (), 1, sweeps=("scale",), launch="0a")
        self.lease = self.store.claims.lease("0a")
        self.weights = torch.zeros(20_000)
        self.row = self.taken()

    def taken(self) -> TrialRun:
        """The next trial, claimed."""
        row = TrialRun.take(TrialConfig.parse(next(self.configs)), self.store, self.job, self.lease)
        assert row is not None
        return row

    def save(self, outcome: str = "running") -> None:
        """A row's epoch: history, checkpoint, record."""
        self.row.add({**ROW, "epoch": len(self.row.history) + 1}, dict, outcome)
        self.row.history = self.row.history[:20]  # that of a usual trial
        self.row.save({"trial_id": self.row.trial_id, "width": 1, "theta": self.weights})

    def trial(self) -> None:
        """All but the saves of its earlier epochs: the end of a trial, and the start of the next."""
        self.save("finished")
        self.row.release()
        self.row = self.taken()

    def look(self) -> None:
        """For the request to stop."""
        self.store.files.read("sweeps/scale/stop-0a")

    def beat(self) -> None:
        """A heartbeat."""
        self.lease.beat()


ACTIONS = {
    "heartbeats": Worker.beat,
    "looks for a stop": Worker.look,
    "saved rows": Worker.save,
    "trials": Worker.trial,
}


def counting(root: str) -> Counted:
    """Counts from now on the calls below a local Store, or the requests to S3."""
    counted = Counted()
    counted.install()
    counted.root = "" if root.startswith("s3") else root
    return counted


def counted_calls(root: str, configs: Sequence[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """By action, its calls to the file system or its requests."""
    counted, worker = counting(root), Worker(root, configs)
    calls = {}
    for what, act in ACTIONS.items():
        act(worker)  # what is done once is not counted
        counted.restart()
        act(worker)
        calls[what] = Counter(call.kind for call in counted.calls)
    return calls


def repeated(root: str, configs: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, float]:
    """By action, how often a second the threads of one process do it."""
    rates, workers = {}, [Worker(root, configs[number::THREADS]) for number in range(THREADS)]
    for what, act in ACTIONS.items():
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(act, workers))  # the first time imports what it needs
            deadline = time.monotonic() + seconds
            rates[what] = sum(pool.map(partial(times, act, deadline=deadline), workers)) / seconds
    return rates


def times(act: Callable[[Worker], None], worker: Worker, deadline: float) -> int:
    """How often a worker does it until then."""
    number = 0
    while time.monotonic() < deadline:
        act(worker)
        number += 1
    return number


def looks(root: str, spec_file: Path, planted: int) -> list[tuple[float, int]]:
    """Seconds and calls of a first and a second look of `status` at a sweep of so many finished trials.

    Local: seconds of one core, so that other processes on the machine do not count.
    """
    store, spec = Store(root), SweepSpec.load(spec_file)
    record = {"format": 2, "outcome": "finished", "width": 1, "epoch": 20, "seconds": 1.0, "signature": "s",
              "extremes": {spec.metric.name: [0.5, 0.5]}, "stalled": False, "notes": [], "sessions": []}  # fmt: skip
    contents = {t.trial_id: json_bytes({**record, "trial_id": t.trial_id}) for t in spec.trials[:planted]}
    with ThreadPoolExecutor(2 * THREADS) as pool:
        list(pool.map(lambda i: store.files.write(f"trials/{i}/record.json", contents[i]), contents))
    store.sweep_records.extend(spec.name, spec.settings, spec.trials[:planted])
    counted, records, answers = counting(root), dict[str, Any](), []
    for _ in range(2):
        counted.restart()
        clock = time.process_time if store.is_local else time.monotonic
        began = clock()
        status_of(store.launched(spec.name), store, records)
        answers.append((clock() - began, len(counted.calls)))
    return answers


def mirrored(root: str, configs: Sequence[Mapping[str, Any]]) -> float:
    """How many offline runs of W&B a launch writes a second."""
    worker, flat = Worker(root, configs), {}
    for values in configs[:-1]:
        config = TrialConfig.parse(values)
        worker.trial()
        flat[config.trial_id] = config.flat()
    first = next(iter(flat))
    complete({first: flat.pop(first)}, worker.store, "offline")  # starts the client
    began = time.monotonic()
    complete(flat, worker.store, "offline")
    return len(flat) / (time.monotonic() - began)
