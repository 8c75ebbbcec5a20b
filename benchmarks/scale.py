"""The first limit that a sweep meets as its workers become more: what is needed a second, and what one driver and one
Store sustain.

Real are the driver (`Rounds` on Ray Tune, `JobQueue`, `Progress`, the lease of a launch), the Store, and what workers
do to it: leases, claims, saves, looks for the request to stop. Simulated are the workers themselves: to Tune they are
actors, but all of them are calls of one process (`simulated.py`); to the Store they are threads that save a checkpoint
of 80 kB without training (`writers.py`). So what is sustained is that of one core with a driver and of this machine's
disk, the clients in it; on S3 that of a moto server on loopback, whose own share is printed. Reads are measured on some
trials and scaled to `--trials`: they grow with their number.

    python benchmarks/scale.py [--workers 10 100 1000] [--trials 100000] [--places local s3] [--seconds 10]
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from store import moto
from sweep import grid
from writers import ACTIONS, counted_calls, looks, mirrored, repeated

from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.claims import HEARTBEAT_SECONDS
from polysweep.sweeps.worker.heartbeat import POLL_SECONDS, REMOTE_POLL_SECONDS

READY_SECONDS = 60.0  # in which all workers should be at work
WATCH_SECONDS = 2.0  # between two looks of `status --watch`
PUTS = 3500  # a second that S3 takes by prefix, according to its "Performance guidelines"
PLANTED = {"local": 2000, "s3": 200}  # trials whose records are read


@dataclass(frozen=True)
class Line:
    """One line of the table. Both rates are of the same thing, by second."""

    what: str
    needed: float
    sustained: float
    where: str

    @property
    def use(self) -> float:
        """Share of what is sustained that is needed; above 1 it is a limit."""
        return self.needed / self.sustained


def alone(call: Callable[[], Any]) -> Any:
    """The answer of a call in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(call).result()


def driving(spec_file: Path, workers: int, options: argparse.Namespace) -> tuple[list[Line], str]:
    """One driver with that many workers, which report as fast as they can once all have started."""
    from simulated import Load, driver

    from polysweep.sweeps.scheduling.ray_tune import report_seconds

    job_seconds = options.epochs * options.epoch_seconds
    together = max(1, math.ceil(report_seconds(workers) / options.epoch_seconds))
    reports = math.ceil(options.epochs / together)
    load = Load(workers, reports, together, start_seconds=1.0, report_seconds=0.0, patience=READY_SECONDS)
    seen = driver(spec_file, load, options.seconds, options.folder)
    lines = [
        Line("workers that start", workers / READY_SECONDS, seen.starting / options.start_seconds,
             f"Tune: {seen.starting} start at one time, {options.start_seconds:g} s each"),
        Line("reports", workers * reports / job_seconds, 1 / seen.report_seconds,
             "; ".join(f"{name} {1000 * seconds:.1f} ms" for name, seconds in seen.costs[:3])),
    ]  # fmt: skip
    sustained, done = 1 / seen.report_seconds / reports, workers / job_seconds
    note = (
        f"{workers:,} workers, {seen.started:,} of them at work after {READY_SECONDS:g} s: a driver takes "
        f"{reports * sustained:.0f} reports a second, that is {sustained:.1f} jobs of {options.width} trials and "
        f"{reports} reports, {86400 * options.width * sustained:,.0f} trials a day; these workers do "
        f"{86400 * options.width * done:,.0f}; {seen.megabytes:.0f} MB for {options.trials:,} trials"
    )
    return lines, note


def writers(place: str, root: str, workers: Sequence[int], configs: Sequence[Any], options: argparse.Namespace,
            server: int | None) -> tuple[dict[int, list[Line]], list[str]]:  # fmt: skip
    """What workers do to the Store, from two processes at once; the calls of one of them are counted."""
    calls = alone(partial(counted_calls, f"{root}/counted", configs[:10]))
    began, half = cpu_seconds(server), len(configs) // 2
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        parts = [configs[:half], configs[half:]]
        both = list(pool.map(repeated, [f"{root}/repeated"] * 2, parts, [options.seconds / 3] * 2))
    rates = {what: sum(rate[what] for rate in both) for what in ACTIONS}
    requests = options.seconds / 3 * sum(rates[what] * calls[what].total() for what in ACTIONS)
    own = 1000 * (cpu_seconds(server) - began) / requests
    lines, notes = {}, []
    for count in workers:
        needed = needed_of(place, count, options)
        lines[count] = [
            Line(
                f"{place}: {what}",
                needed[what],
                rates[what],
                ", ".join(f"{n} {kind}" for kind, n in calls[what].items()),
            )
            for what in ACTIONS
        ]
        together = Counter({what: needed[what] * calls[what].total() for what in ACTIONS})
        puts = sum(needed[what] * calls[what]["PutObject"] for what in ACTIONS)
        if puts:
            lines[count].append(Line("s3: PUTs, by Amazon's figure", puts, PUTS, "all of the above, on one prefix"))
        notes.append(
            f"{place}, {count} workers: {together.total():,.0f} calls a second, most of {together.most_common(1)[0][0]}"
        )
    if server:
        notes.append(f"s3: the moto server itself used {own:.1f} ms of a core for each request")
    return lines, notes


def needed_of(place: str, workers: int, options: argparse.Namespace) -> dict[str, float]:
    """How often a second all workers together do it."""
    rows = workers * options.width
    poll = POLL_SECONDS if place == "local" else REMOTE_POLL_SECONDS
    return {
        "heartbeats": workers / HEARTBEAT_SECONDS,
        "looks for a stop": workers / poll,
        "saved rows": rows / max(options.epoch_seconds, options.checkpoint_seconds),
        "trials": rows / (options.epochs * options.epoch_seconds),
    }


def cpu_seconds(pid: int | None) -> float:
    """Of a process so far; 0 without one."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def planning(spec_file: Path) -> str:
    """What stands before a launch: reading the spec, and the plan beside an empty Store."""
    began = time.process_time()
    spec = SweepSpec.load(spec_file)
    stacks = plan(spec, {}).stacks
    seconds, memory = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"plan of {len(spec.trials):,} trials, {len(stacks):,} stacks: {seconds:.1f} s of one core, {memory:.0f} MB"


def readers(place: str, root: str, spec_file: Path, options: argparse.Namespace) -> tuple[Line, str]:
    """`status --watch` of a sweep that has ended but for what runs, and what its first look costs."""
    planted = min(PLANTED[place], options.trials)
    (first, calls), (later, again) = alone(partial(looks, root, spec_file, planted))
    scale = options.trials / planted
    line = Line(
        f"{place}: status --watch", 1 / WATCH_SECONDS, 1 / (later * scale), f"{again * scale:,.0f} calls a look"
    )
    note = f"{place}: a first status of {options.trials:,} trials: {first * scale:.1f} s, {calls * scale:,.0f} calls"
    return line, note


def table_of(workers: int, lines: Sequence[Line], trials: int) -> Table:
    """All that is needed of one driver and one Store, the nearest limit first."""
    table = Table(title=f"{workers:,} workers, {trials:,} trials: by second")
    for column in ("what", "needed", "sustained", "use", "where"):
        table.add_column(column, justify="left" if column in ("what", "where") else "right")
    for line in sorted(lines, key=lambda line: -line.use):
        table.add_row(
            line.what, f"{line.needed:,.1f}", f"{line.sustained:,.1f}", f"{100 * line.use:,.0f} %", line.where
        )
    return table


def main() -> None:
    """Print a table for each number of workers, and the first limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--trials", type=int, default=100_000, help="a multiple of 1000, or of 100 below 1000")
    parser.add_argument("--places", nargs="*", choices=list(PLANTED), default=list(PLANTED))
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--width", type=int, default=8, help="trials in a stack")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--epoch-seconds", type=float, default=5.0)
    parser.add_argument("--checkpoint-seconds", type=float, default=1.0, help="launch.checkpoint_seconds")
    parser.add_argument("--start-seconds", type=float, default=3.0, help="a worker's process and its imports")
    parser.add_argument("--folder", help="on whose file system the local Store is; a temporary one if absent")
    options = parser.parse_args()
    logging.getLogger("polysweep").setLevel(logging.ERROR)
    console = Console(width=160)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        spec_file, notes = spec_of(Path(folder), options), []
        lines: dict[int, list[Line]] = {workers: [] for workers in options.workers}
        notes.append(alone(partial(planning, spec_file)))
        configs = alone(partial(configs_of, spec_file))
        for place in options.places:
            with moto(Path(folder)) if place == "s3" else nullcontext() as server:
                root = "s3://benchmark" if server else f"{folder}/store"
                written, remarks = writers(place, root, options.workers, configs, options, server)
                line, remark = readers(place, f"{root}/read", spec_file, options)
                notes += [*remarks, remark]
            for workers in options.workers:
                lines[workers] += [*written[workers], line]
        offline = alone(partial(mirrored, f"{folder}/mirrored", configs[:20]))
        for note in notes:
            console.print(note)
        for workers in options.workers:
            own, note = alone(partial(driving, spec_file, workers, options))
            trials = needed_of("local", workers, options)["trials"]
            mirror = Line("offline W&B runs", trials, offline, "tracking/offline_runs.py, in the launch's process")
            all_lines = [*lines[workers], *own, mirror]
            console.print(table_of(workers, all_lines, options.trials))
            first = max(all_lines, key=lambda line: line.use)
            console.print(f"first limit at {workers:,} workers: {first.what}, {100 * first.use:,.0f} % ({first.where})")
            console.print(note)


def spec_of(folder: Path, options: argparse.Namespace) -> Path:
    """The spec of the sweep."""
    spec = grid(options.trials, min(100, options.trials // 10))
    path = folder / "scale.yaml"
    path.write_text(json.dumps({**spec, "launch": {"stack": options.width}}))
    return path


def configs_of(spec_file: Path) -> list[dict[str, Any]]:
    """Those of some trials, as workers get them."""
    return [trial.config.canonical() for trial in SweepSpec.load(spec_file).trials[:8000]]


if __name__ == "__main__":
    main()
