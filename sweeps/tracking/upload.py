"""Uploads to the W&B server exactly what it lacks of trials, from the Store's records."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.record import mark_wandb
from polysweep.sweeps.store.states import State
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.offline_runs import mark_uploaded
from polysweep.sweeps.tracking.wandb_server import Server, ServerRun
from polysweep.sweeps.tracking.wandb_sweep import sweep_ids
from polysweep.trainer.errors import UserError
from polysweep.trainer.folders import OwnFolder
from polysweep.trainer.wandb_client import Fault, Run, send_run
from polysweep.trainer.wandb_runs import FOLDER, describe

UPLOAD_SECONDS: Final = 120.0  # of one run
UPLOADS_AT_ONCE: Final = 4
NAMED: Final = 3
DELETED: Final = "deleted {}"
"""The value of `wandb` in a record if the run was deleted in a project: the server refuses its id for ever."""
Flat = Mapping[str, Any]
"""The fields of a config that are in use, options as `model_options.hidden`."""


@dataclass(frozen=True)
class Described:
    """What of a trial makes its run: the fields in use, the sweeps that contain it, its record."""

    trial_id: str
    flat: Flat
    tags: tuple[str, ...]
    record: Mapping[str, Any]
    sweep_id: str | None = None  # of W&B

    def run(self, store: Store) -> Run:
        """The trial as W&B shows it. Raises `StoreError` if the Store has no config of it."""
        canonical = store.config(self.trial_id)
        if canonical is None:
            raise StoreError(f"{store.files.path(f'trials/{self.trial_id}/config.json')}: missing")
        run = describe(self.trial_id, canonical, self.flat, self.tags, self.record)
        return replace(run, sweep_id=self.sweep_id)

    def lacks(self, run: ServerRun | None) -> str:
        """What the server lacks of it: `ServerRun.lacks`, or run."""
        return "run" if run is None else run.lacks(self.record["epoch"], self.record["outcome"], self.tags)


def described_trials(store: Store, trials: Mapping[str, Flat], sweeps: Iterable[str] = ()) -> dict[str, Described]:
    """Every trial that has a record, tagged with the sweeps that contain it and with `sweeps`."""
    names = store.sweeps_of(set(trials)) if trials else {}
    tags = {trial_id: tuple(sorted({*names[trial_id], *sweeps})) for trial_id in trials}
    ids = sweep_ids(store, tags)
    return {
        trial_id: Described(trial_id, trials[trial_id], tags[trial_id], record, ids[trial_id])
        for trial_id, record in store.records(trials)
        if not isinstance(record, StoreError)
    }


@dataclass
class Counts:
    """What an upload has done: runs that were complete, that got rows or their end, that got tags, that are not."""

    complete: int = 0
    uploaded: int = 0
    tagged: int = 0
    elsewhere: int = 0
    failed: tuple[str, ...] = ()
    why: str = ""  # the first of them failed
    holes: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the server now has all of the trials."""
        return not (self.failed or self.holes or self.repeats or self.deleted)

    def __str__(self) -> str:
        incomplete = f" ({some_of(self.failed)}{f'; {self.why}' if self.why else ''})" if self.failed else ""
        parts = [
            f"{self.complete} W&B runs were complete",
            f"{self.uploaded} uploaded",
            f"{self.tagged} tagged",
            f"{len(self.failed)} still incomplete{incomplete}",
        ]
        if self.elsewhere:
            parts.append(f"{self.elsewhere} being trained now (left to their own process)")
        for trial_ids, what in (
            (self.holes, "with rows missing in the middle, which W&B's client cannot fill"),
            (self.repeats, "with rows that are there more than once, which W&B's client cannot take back"),
            (
                self.deleted,
                "deleted on the server, which never gives an id away again (restore them there and "
                "run polysweep sync --again, or log the sweep to another project with WANDB_PROJECT)",
            ),
        ):
            if trial_ids:
                parts.append(f"{len(trial_ids)} {what}: {some_of(trial_ids)}")
        return ", ".join(parts)


def upload(store: Store, trials: Mapping[str, Flat], *, again: bool = False) -> Counts:
    """Compare trials with the W&B server and upload exactly what it lacks; then compare again.

    What is found is noted in the final record of a trial: that its run is complete there, or that it was deleted; the
    latter is not tried any more, unless `again`. If the server becomes unreachable, the upload ends: it takes no longer
    than the run that is being sent then. Raises `UserError` if the server cannot be reached at all.
    """
    counts, server = Counts(), Server()
    described = _comparable(store, trials, "" if again else server.project, counts)
    present = server.runs(list(described))
    lacking = {trial_id: trial.lacks(present.get(trial_id)) for trial_id, trial in described.items()}
    counts.complete = sum(not what for what in lacking.values())
    tagged = {trial_id: described[trial_id].tags for trial_id, what in lacking.items() if what == "tags"}
    sent = [i for i, what in lacking.items() if what in ("run", "rows", "end") and not _has_hole(present, i)]
    faults = _send_all(store, {trial_id: described[trial_id] for trial_id in sent})
    try:
        server.add_tags(tagged)
        present = server.runs(list(described)) if tagged or sent else present
    except UserError as error:
        counts.why = str(error)
    _sum_up(counts, store, server.project, described, present, faults)
    counts.tagged = len(set(tagged) - set(counts.failed))
    counts.uploaded = len(set(sent) - {*counts.failed, *counts.deleted})
    return counts


def _comparable(store: Store, trials: Mapping[str, Flat], project: str, counts: Counts) -> dict[str, Described]:
    """The trials that the server should have, but for those that are trained now or were deleted in `project`."""
    comparable: dict[str, Described] = {}
    for trial_id, trial in described_trials(store, trials).items():
        is_open = trial.record["outcome"] == State.RUNNING
        if is_open and store.owner(trial_id) is not None:
            counts.elsewhere += 1
        elif project and trial.record.get("wandb") == DELETED.format(project):
            counts.deleted += (trial_id,)
        elif trial.record["epoch"] or not is_open:
            comparable[trial_id] = trial
    return comparable


def _sum_up(
    counts: Counts,
    store: Store,
    project: str,
    described: Mapping[str, Described],
    present: Mapping[str, ServerRun],
    faults: Mapping[str, Fault],
) -> None:
    """Count what the server has now, and note it in the records."""
    lease = store.claims.lease()
    for trial_id, trial in described.items():
        fault, run = faults.get(trial_id), present.get(trial_id)
        if fault is not None and fault.kind == "deleted":
            counts.deleted += (trial_id,)
            mark_wandb(store, trial_id, DELETED.format(project), lease)
        elif trial.lacks(run):
            counts.failed += (trial_id,)
            counts.why = counts.why or (fault.reason if fault else "")
        elif trial.record.get("wandb") != "online":
            mark_wandb(store, trial_id, "online", lease)
    lease.release()
    counts.holes = tuple(trial_id for trial_id in described if _has_hole(present, trial_id))
    counts.repeats = tuple(trial_id for trial_id in described if trial_id in present and present[trial_id].has_repeats)
    mark_uploaded(store.wandb_folder, set(described) - {*counts.failed, *counts.deleted})


def _send_all(store: Store, described: Mapping[str, Described]) -> dict[str, Fault]:
    """Send runs, each by itself: an error of one does not stop the others, unless the server is unreachable."""
    is_lost = threading.Event()

    def send(folder: Path, trial_id: str) -> Fault | None:
        if is_lost.is_set():
            return Fault("unreachable", "")
        try:
            run, history = described[trial_id].run(store), store.history(trial_id)
            send_run(run, history, described[trial_id].record["outcome"], folder, UPLOAD_SECONDS)
        except Exception as error:
            fault = Fault("refused", str(error)) if isinstance(error, StoreError) else Fault.of(error)
            if fault.kind == "unreachable":
                is_lost.set()
            return fault
        return None

    if not described:
        return {}
    with OwnFolder(Path(tempfile.gettempdir()), FOLDER) as own, ThreadPoolExecutor(UPLOADS_AT_ONCE) as lines:
        faults = lines.map(lambda trial_id: send(own.path, trial_id), described)
        return {trial_id: fault for trial_id, fault in zip(described, faults, strict=True) if fault is not None}


def _has_hole(present: Mapping[str, ServerRun], trial_id: str) -> bool:
    return trial_id in present and present[trial_id].has_hole


def some_of(trial_ids: Sequence[str]) -> str:
    return ", ".join(trial_ids[:NAMED]) + (f" and {len(trial_ids) - NAMED} more" if len(trial_ids) > NAMED else "")
