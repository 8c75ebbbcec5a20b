"""What is kept of a chaos: disturbances by kind, and everything that should not have come of them."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import Household
from tests.support.results import records

LEFT_SECONDS = 15.0
"""A promise: so long after a launch has ended, however it did, none of its processes is left."""
KEPT_OUTPUT = 1500  # characters of a command's output that a problem shows


@dataclass
class Tally:
    """Disturbances by kind, and problems by kind."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    missed: Counter[str] = field(default_factory=Counter)  # disturbances that found nothing to strike
    problems: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: str, seconds: float) -> None:
        """One disturbance, and how long it lasted."""
        self.counts[kind] += 1
        self.seconds[kind] += seconds

    def problem(self, kind: str, detail: str) -> None:
        """Something that must not be."""
        self.problems.append((kind, detail))

    def expect(self, kind: str, holds: bool, detail: str) -> None:
        """A problem unless it holds."""
        if not holds:
            self.problem(kind, detail)

    def table(self, title: str) -> str:
        """Counts and seconds by kind, then the problems by kind."""
        lines = [f"\n{title}", f"{'kind':34}{'count':>6}{'seconds':>9}"]
        lines += [f"{kind:34}{self.counts[kind]:6}{self.seconds[kind]:9.1f}" for kind in sorted(self.counts)]
        lines += [f"{'all':34}{sum(self.counts.values()):6}{sum(self.seconds.values()):9.1f}"]
        lines += [f"nothing to strike: {kind}: {count} times" for kind, count in self.missed.items()]
        found = Counter(kind for kind, _ in self.problems)
        lines += [f"problem: {kind}: {count} times" for kind, count in found.items()] or ["no problem"]
        return "\n".join(lines)

    def report(self) -> str:
        """Every problem in words."""
        return "\n".join(f"--- {kind}: {detail}" for kind, detail in self.problems)


@dataclass
class Launch:
    """One `polysweep launch`: its processes, and the file with its output."""

    pid: int
    household: Household
    output: Path
    ended: float | None = None  # when that was noticed, on the monotonic clock

    def everything(self) -> str:
        """Its output."""
        return self.output.read_text(errors="replace")

    def said(self) -> str:
        """The end of it."""
        return self.everything()[-KEPT_OUTPUT:]


class Witness:
    """A thread that looks all the time: whether a counted epoch is lost, an ended trial changes, a process is left.

    `store` is what it looks at now, None for nothing.
    """

    def __init__(self, tally: Tally, seconds: float) -> None:
        self.store: str | None = None
        self.lost = 0  # epochs
        self._tally = tally
        self._seconds = seconds  # between two looks at the Store
        self._epochs: dict[str, int] = {}
        self._ended: dict[str, float] = {}
        self._launches: list[Launch] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._lock = threading.RLock()

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for launch in self._launches:
            launch.household.kill()

    def watch(self, launch: Launch) -> None:
        """From now on until all its processes have gone."""
        with self._lock:
            self._launches.append(launch)

    def turn_to(self, store: str | None) -> None:
        """Look at another Store."""
        with self._lock:
            self.store, self._epochs, self._ended = store, {}, {}

    def epochs(self) -> int:
        """The epochs that the Store counts, of all trials, as last seen."""
        return sum(self._epochs.values())

    def look(self) -> None:
        """At the Store, once."""
        with self._lock:
            if self.store is None:
                return
            found = self._tried(lambda: records(self.store or ""))
            for trial_id, record in found.items():
                self._compare(trial_id, record)

    def settle(self) -> None:
        """Wait until it is known of every launch that has ended whether it has left processes."""
        while self._launches and all(launch.ended is not None for launch in self._launches):
            time.sleep(0.2)

    def _compare(self, trial_id: str, record: object) -> None:
        if not isinstance(record, dict):
            self._tally.problem("damaged record", f"{trial_id}: {record}")
            return
        before = self._epochs.get(trial_id, 0)
        if record["epoch"] < before:
            self.lost += before - record["epoch"]
            self._tally.problem("epochs lost", f"{trial_id}: {record['epoch']} after {before}")
        self._epochs[trial_id] = record["epoch"]
        if record["outcome"] == "finished":
            first = self._ended.setdefault(trial_id, record["ended"])
            self._tally.expect("an ended trial was run again", first == record["ended"], trial_id)
        elif record["outcome"] != "running":
            self._tally.problem("wrong outcome", f"{trial_id}: {record['outcome']}: {record.get('error')}")

    def _tried(self, call: Callable[[], Mapping[str, object]]) -> Mapping[str, object]:
        """Nothing where a server that is disturbed does not answer the witness either."""
        try:
            return call()
        except Exception as error:
            if str(self.store).startswith("s3"):
                return {}
            self._tally.problem("the Store cannot be read", repr(error))
            return {}

    def _run(self) -> None:
        looked = 0.0
        while not self._over.wait(0.2):
            with self._lock:
                for launch in list(self._launches):
                    self._look_at(launch)
            if time.monotonic() - looked >= self._seconds:
                self.look()
                looked = time.monotonic()

    def _look_at(self, launch: Launch) -> None:
        launch.household.look()
        if launch.ended is None:
            return
        late = time.monotonic() - launch.ended >= LEFT_SECONDS
        if launch.household.alive() and not late:
            return
        left = launch.household.left()
        if left and not late:
            return
        if left:
            self._tally.problem("processes left", f"{LEFT_SECONDS:.0f} s after the end of {launch.output.name}: {left}")
            launch.household.kill()
        self._launches.remove(launch)
