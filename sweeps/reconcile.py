"""Completes W&B from the Store: offline runs as trials end, and on the server whatever it lacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from sweeps.decisions import Supply
from sweeps.files import StoreError
from sweeps.printing import warn
from sweeps.record import mark_synced
from sweeps.server import Server, ServerRun
from sweeps.store import Store
from sweeps.sweep_index import Sweep
from trainer.config import TrialConfig
from trainer.registry import UserError
from trainer.tracking import (
    Mode,
    Online,
    describe,
    logged_in,
    offline_runs,
    remove_leftovers,
    write_offline,
)

UPLOAD_SECONDS: Final = 120.0  # of one run
UPLOADS_AT_ONCE: Final = 4
log = logging.getLogger("polysweep.wandb")


class OfflineWriter:
    """Writes the offline run of every trial that ends, in a thread of the launching process.

    One client for all of a sweep's trials: it costs each worker nothing. What it has not written when the process ends,
    the next launch writes.
    """

    def __init__(self, store: Store, supply: Supply) -> None:
        self._store = store
        self._supply = supply
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wandb")

    def ended(self, trial_id: str) -> None:
        """Write the run of a trial whose final record is in the Store."""
        self._thread.submit(self._write, trial_id)

    def close(self, *, wait: bool) -> None:
        """Write what is waiting, or drop it."""
        self._thread.shutdown(wait=wait, cancel_futures=not wait)

    def _write(self, trial_id: str) -> None:
        try:
            config = next(trial.config for trial in self._supply.spec.trials if trial.trial_id == trial_id)
            _write(self._store, {trial_id: config})
        except Exception:
            # W&B mirrors the Store: its troubles never end a sweep, and `complete` tries again, loudly.
            log.info("the offline W&B run of %s was not written", trial_id, exc_info=True)


def complete(ended: Mapping[str, TrialConfig], store: Store, mode: Mode) -> None:
    """Write or upload the runs of `ended` trials that are missing.

    Imports wandb only where something may be missing: the record of a trial says once the server has confirmed it.
    """
    try:
        if mode == "offline":
            remove_leftovers(store.wandb_folder)
            present = offline_runs(store.wandb_folder)
            _write(store, {trial_id: config for trial_id, config in ended.items() if trial_id not in present})
        elif mode == "online":
            records = dict(store.records(ended))
            unconfirmed = {t: c for t, c in ended.items() if _record(records.get(t)).get("wandb") != "online"}
            if unconfirmed:
                counts = upload(store, unconfirmed)
                if counts.failed:
                    warn(f"{counts}; polysweep sync uploads them")
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        what = first if isinstance(error, UserError) else f"{type(error).__name__}: {first}"
        warn(f"W&B runs are missing ({what}); polysweep sync uploads them")


@dataclass
class Counts:
    """What an upload has done: runs that were complete, that got rows or their end, that got tags, that are not."""

    complete: int = 0
    uploaded: int = 0
    tagged: int = 0
    elsewhere: int = 0
    failed: int = 0
    holes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [
            f"{self.complete} W&B runs were complete",
            f"{self.uploaded} uploaded",
            f"{self.tagged} tagged",
            f"{self.failed} still incomplete",
        ]
        if self.elsewhere:
            parts.append(f"{self.elsewhere} being trained now (left to their own process)")
        if self.holes:
            parts.append(
                f"{len(self.holes)} with rows missing in the middle, which W&B's client cannot fill: "
                f"{', '.join(self.holes[:3])}{' and more' if len(self.holes) > 3 else ''}"
            )
        return ", ".join(parts)


def upload(store: Store, trials: Mapping[str, TrialConfig]) -> Counts:
    """Compare trials with the W&B server and upload exactly what it lacks; then compare again.

    A trial whose run is complete there is noted as such in its final record. Raises `UserError` where the server cannot
    be reached.
    """
    counts = Counts()
    described = {}
    for trial_id, (config, tags, record) in _described(store, trials).items():
        if record["outcome"] == "running" and store.owner(trial_id) is not None:
            counts.elsewhere += 1
        elif record["epoch"] or record["outcome"] != "running":
            described[trial_id] = (config, tags, record)
    there = Server().runs(list(described))
    lacking = {trial_id: _lacks(there.get(trial_id), *described[trial_id][1:]) for trial_id in described}
    tagged = {trial_id: described[trial_id][1] for trial_id, what in lacking.items() if what == "tags"}
    sent = [
        trial_id for trial_id, what in lacking.items() if what in ("run", "rows", "end") and not _hole(there, trial_id)
    ]
    if tagged:
        Server().add_tags(tagged)
    if sent:
        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as lines:
            list(lines.map(lambda trial_id: _send(store, trial_id, *described[trial_id]), sent))
    if tagged or sent:
        there = Server().runs(list(described))
    for trial_id, (_, tags, record) in described.items():
        if _lacks(there.get(trial_id), tags, record):
            counts.failed += 1
        elif record.get("wandb") != "online":
            mark_synced(store, trial_id)
    counts.tagged, counts.uploaded = len(tagged), len(sent)
    counts.complete = len(described) - len(tagged) - len(sent)
    counts.holes = tuple(trial_id for trial_id in described if trial_id in there and there[trial_id].has_hole)
    return counts


def _send(store: Store, trial_id: str, config: TrialConfig, tags: Sequence[str], record: Mapping[str, Any]) -> None:
    """One run, by a client of its own: what goes wrong with it does not stop the others."""
    online = Online()
    online.start(describe(config, tags), store.history(trial_id))
    online.finish(trial_id, record["outcome"])
    online.drain(UPLOAD_SECONDS)


def sync(spec: Sweep, store: Store, say: Callable[[str], None]) -> int:
    """`polysweep sync`: upload what the W&B server lacks of a sweep; returns the exit code.

    Raises `UserError` where W&B is not logged in or cannot be reached.
    """
    if not logged_in():
        raise UserError("W&B is not logged in: set WANDB_API_KEY, or run wandb login")
    listed = {trial.trial_id: trial.config for trial in spec.trials}
    there = {t: listed[t] for t, record in store.records(listed) if not isinstance(record, StoreError)}
    damaged = [t for t, record in store.records(listed) if isinstance(record, StoreError)]
    counts = upload(store, there)
    say(f"{spec.name}: {counts}")
    for trial_id in damaged:
        say(f"{trial_id}: its record is damaged, nothing of it is uploaded")
    return 1 if counts.failed or counts.holes or damaged else 0


def _hole(there: Mapping[str, ServerRun], trial_id: str) -> bool:
    return trial_id in there and there[trial_id].has_hole


def _lacks(run: ServerRun | None, tags: Sequence[str], record: Mapping[str, Any]) -> str:
    return "run" if run is None else run.lacks(record["epoch"], record["outcome"], tags)


def _record(found: dict[str, Any] | StoreError | None) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _write(store: Store, trials: Mapping[str, TrialConfig]) -> None:
    for trial_id, (config, tags, record) in _described(store, trials).items():
        run, history = describe(config, tags), store.history(trial_id)
        write_offline(store.wandb_folder, run, history, record["outcome"], record["ended"] or 0)


def _described(
    store: Store, trials: Mapping[str, TrialConfig]
) -> dict[str, tuple[TrialConfig, Sequence[str], dict[str, Any]]]:
    """Config, names of the sweeps that contain it, and record of every trial that has one."""
    tags = store.sweeps_of(set(trials)) if trials else {}
    return {
        trial_id: (trials[trial_id], tags[trial_id], record)
        for trial_id, record in store.records(trials)
        if not isinstance(record, StoreError)
    }
