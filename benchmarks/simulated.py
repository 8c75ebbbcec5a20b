"""A driver among simulated workers, for `scale.py`: to Ray Tune they are actors, here all are calls of one process.

The driver, Tune's controller and actor manager, the placement groups, the calls and what travels in them are real.
Simulated is that every worker has a process, that it takes some seconds to start one, and that an epoch is trained.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import logging
import pstats
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from polysweep.sweeps.scheduling.ray_environment import prepare

prepare(None, False)  # before Ray is imported

import ray  # noqa: E402
from ray.tune.execution.tune_controller import _ActorClassCache  # noqa: E402
from rich.console import Console  # noqa: E402
from writers import ROW  # noqa: E402

from polysweep.sweeps.job import LaunchOptions, RowProgress  # noqa: E402
from polysweep.sweeps.scheduling import local_ray  # noqa: E402
from polysweep.sweeps.scheduling.job_queue import JobQueue  # noqa: E402
from polysweep.sweeps.scheduling.progress import Progress  # noqa: E402
from polysweep.sweeps.scheduling.rounds import Rounds  # noqa: E402
from polysweep.sweeps.spec.spec import SweepSpec  # noqa: E402
from polysweep.sweeps.store.launches import LaunchLease  # noqa: E402
from polysweep.sweeps.store.store import Store  # noqa: E402
from polysweep.sweeps.worker.signals import Interruption  # noqa: E402

PARTS = {
    ("progress.py", "update"): "Progress.update",
    ("job_queue.py", "update"): "JobQueue.update",
    ("worker.py", "wait"): "ray.wait for every worker's call",
    ("random.py", "shuffle"): "Tune's shuffle of these calls",
    ("search_generator.py", "create_trial_if_possible"): "Tune's trial of each job",
    ("actor.py", "_actor_method_call"): "Ray's call of a worker",
    ("placement_group.py", "placement_group"): "Ray's placement groups",
}
"""Parts of the driver, by the file and function that the profile has."""


@dataclass(frozen=True)
class Load:
    """What the workers do, and how long it takes them."""

    workers: int
    reports: int  # of a job
    together: int  # epochs in a report
    start_seconds: float  # to start a worker's process
    report_seconds: float  # from one report to the next
    patience: float  # seconds after which training begins although not all workers have started


@dataclass
class Host:
    """All workers of a load; none trains before all have started."""

    load: Load
    jobs: dict[int, list[Any]] = field(default_factory=dict)  # by worker, its trials and how often it has reported
    starting: int = 0
    most_starting: int = 0  # at one time
    started: int = 0
    all_started: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, worker: int, method: str, *arguments: Any, **_: Any) -> Any:
        """What an actor would answer. Tune calls `stop` and `get_auto_filled_metrics` too, which need no answer."""
        answered = {"start": self.start, "reset": self.take, "train": self.train}
        return await answered[method](worker, *arguments) if method in answered else {}

    async def start(self, worker: int, config: Mapping[str, Any]) -> bool:
        """Start a worker with its first job."""
        if not self.starting and not self.started:
            asyncio.get_running_loop().call_later(self.load.patience, self.all_started.set)
        self.starting += 1
        self.most_starting = max(self.most_starting, self.starting)
        await asyncio.sleep(self.load.start_seconds)
        self.starting -= 1
        self.started += 1
        if self.started == self.load.workers:
            self.all_started.set()
        return await self.take(worker, config)

    async def take(self, worker: int, config: Mapping[str, Any]) -> bool:
        """Take the next job."""
        self.jobs[worker] = [[trial_id for job in config["jobs"] for trial_id in job["supersedes"]], 0]
        return True

    async def train(self, worker: int) -> dict[str, Any]:
        """A report."""
        await self.all_started.wait()
        await asyncio.sleep(self.load.report_seconds)
        self.jobs[worker][1] += 1
        trials, reports = self.jobs[worker]
        is_done = reports == self.load.reports
        row = {"epoch": reports * self.load.together, "outcome": "finished" if is_done else "running", "history": ROW}
        rows = [{"trial_id": trial_id, **row} for trial_id in trials] * self.load.together
        return {"rows": rows, "done": is_done, "training_iteration": reports}

    async def counts(self) -> tuple[int, int]:
        """Workers that have started, and the most that were starting at one time."""
        return self.started, self.most_starting


@dataclass
class Handle:
    """What Tune takes for the handle of one worker's actor."""

    host: Any
    number: int

    def __getattr__(self, method: str) -> Method:
        return Method(self, method)


@dataclass
class Method:
    """`actor.train`, to be called by `actor.train.remote()`."""

    actor: Handle
    name: str

    def remote(self, *arguments: Any, **options: Any) -> Any:
        """Call it; returns a future."""
        if self.name == "__ray_ready__":
            return self.actor.ready
        return self.actor.host.call.remote(self.actor.number, self.name, *arguments, **options)


class Workers(ray.actor.ActorClass):  # type: ignore[misc]
    """What Tune takes for the class of an actor."""

    def __init__(self, load: Load) -> None:
        actor = ray.remote(num_cpus=0, max_concurrency=4 * load.workers + 100)(Host)
        self.host, self.number = actor.remote(load), 0

    def options(self, **_: Any) -> Workers:
        """The resources of a worker are held by its placement group; its calls need none."""
        return self

    def remote(self, config: Mapping[str, Any], **_: Any) -> Handle:
        """Start a worker."""
        self.number += 1
        actor = Handle(self.host, self.number)
        actor.ready = self.host.call.remote(actor.number, "start", config)
        return actor


@contextmanager
def simulated(load: Load) -> Iterator[Workers]:
    """In here, Tune's actors are such workers."""
    workers = Workers(load)
    with patch.object(_ActorClassCache, "get", lambda *_: workers):
        yield workers


@dataclass(frozen=True)
class Driver:
    """What a driver was seen to do."""

    report_seconds: float  # of its thread, so that other processes on the machine do not count
    job_share: float  # jobs begun by report
    costs: list[tuple[str, float]]  # seconds of a report by part, the dearest first
    started: int  # workers
    starting: int  # at one time
    megabytes: float


class Watched(JobQueue):
    """The real queue. It is timed for `seconds` once all reports come, then profiled, then `end` is called."""

    def __init__(self, spec: SweepSpec, store: Store, seconds: float, end: Callable[[], None]) -> None:
        super().__init__(spec, store, "")
        self.bounds = [seconds * share for share in (0.2, 1.2, 1.7)]
        self.profile = cProfile.Profile(time.thread_time)
        self.acts = (lambda: None, self.profile.enable, end)
        self.began, self.reports, self.begun = 0.0, 0, 0
        self.marks: list[tuple[float, int, int]] = []  # seconds of the thread, reports, jobs

    def next(self) -> Any:
        """The next job."""
        self.begun += 1
        return super().next()

    def update(self, rows: Iterable[RowProgress]) -> list[str]:
        """A report."""
        self.reports += 1
        self.began = self.began or time.monotonic()
        passed = len(self.marks)
        if passed < len(self.bounds) and time.monotonic() - self.began >= self.bounds[passed]:
            self.profile.disable()
            self.marks.append((time.thread_time(), self.reports, self.begun))
            self.acts[passed]()
        return super().update(rows)


def driver(spec_file: Path, load: Load, seconds: float, folder: str | None) -> Driver:
    """One driver among workers that report as fast as it takes it."""
    spec, interruption = SweepSpec.load(spec_file), Interruption()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        store = Store(f"{own}/store")
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        queue = Watched(spec, store, seconds, lambda: interruption.request(signal.SIGTERM))
        progress, launch = Progress(spec, queue.states(), Console(file=io.StringIO())), LaunchOptions("disabled")
        with (
            patch.object(local_ray, "usable_cpus", lambda: load.workers),
            local_ray.local_ray(f"{own}/ray", quiet, interruption.give_up),
            simulated(load) as workers,
            LaunchLease(store, spec.name, lambda: None, print) as lease,
        ):
            Rounds(queue, store, launch, own, progress, interruption, None, lease).run()
            started, starting = ray.get(workers.host.counts.remote())
    if len(queue.marks) < len(queue.bounds):
        raise SystemExit("scale.py: the sweep ended before the measurement: give more --trials or fewer --seconds")
    (began, first, jobs), (ended, last, later), _ = queue.marks
    report_seconds = (ended - began) / (last - first)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    costs = parts_of(queue.profile, report_seconds)
    return Driver(report_seconds, (later - jobs) / (last - first), costs, started, starting, megabytes)


def parts_of(profile: cProfile.Profile, report_seconds: float) -> list[tuple[str, float]]:
    """Seconds of a report by part of the driver, the dearest first; a profile tells shares, not seconds."""
    stats: Mapping[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    total = sum(own for _, _, own, _, _ in stats.values())
    seconds: Counter[str] = Counter()
    for (file, _, function), (_, _, _, cumulative, _) in stats.items():
        if name := PARTS.get((Path(file).name, function)):
            seconds[name] += cumulative / total * report_seconds
    return seconds.most_common()
