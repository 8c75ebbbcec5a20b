"""Completes W&B from the Store's records: offline runs as trials end, and on the server whatever it lacks."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from polysweep.sweeps.console import warn
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.record import BEGUN
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.offline_runs import continued_rows, offline_runs, remove_unfinished, write_offline
from polysweep.sweeps.tracking.upload import DELETED, Flat, described_trials, some_of, upload
from polysweep.trainer.errors import UserError
from polysweep.trainer.folders import remove_leftovers
from polysweep.trainer.text import first_line
from polysweep.trainer.wandb_client import EXIT_SECONDS, end_client
from polysweep.trainer.wandb_runs import FOLDER, Mode, logged_in

log = logging.getLogger("polysweep.wandb")


class OfflineWriter:
    """Writes the offline run of every trial that ends, in a thread of the launching process.

    One client for all of a sweep's trials: it costs each worker nothing. What it has not written when the process ends,
    the next launch writes. What has come while it was writing is written together, with one look at the Store.
    """

    def __init__(self, store: Store, flat_of: Callable[[str], Flat], sweeps: Iterable[str] = ()) -> None:
        self._store = store
        self._flat_of = flat_of
        self._sweeps = frozenset(sweeps)
        self._after = continued_rows(store.wandb_folder)
        self._ended: SimpleQueue[str | None] = SimpleQueue()
        self._is_dropped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        self._thread.start()

    def ended(self, trial_id: str) -> None:
        """Write the run of a trial whose final record is in the Store."""
        self._ended.put(trial_id)

    def close(self, *, wait: bool) -> None:
        """Write what is waiting, or drop it."""
        if not wait:
            self._is_dropped.set()
        self._ended.put(None)
        if wait:
            self._thread.join()

    def _work(self) -> None:
        while (batch := _waiting(self._ended)) and not self._is_dropped.is_set():
            trial_ids = [trial_id for trial_id in batch if trial_id is not None]
            try:
                trials = {trial_id: self._flat_of(trial_id) for trial_id in trial_ids}
                _write(self._store, trials, self._after, self._sweeps, self._is_dropped.is_set)
            except Exception:
                # W&B mirrors the Store: its troubles never end a sweep, and `complete` tries again, loudly.
                log.info("offline W&B runs were not written: %s", ", ".join(trial_ids), exc_info=True)
            if None in batch:
                return


def _waiting(queue: SimpleQueue[str | None]) -> list[str | None]:
    """All that a queue has, at least one."""
    items = [queue.get()]
    try:
        while True:
            items.append(queue.get_nowait())
    except Empty:
        return items


def complete(ended: Mapping[str, Flat], store: Store, mode: Mode) -> None:
    """Write or upload the runs of `ended` trials that are missing; it ends in bounded time whatever the server does.

    Imports wandb only if something may be missing: the record of a trial notes that the server has confirmed it.
    """
    try:
        if mode == "offline":
            remove_unfinished(store.wandb_folder)
            present = offline_runs(store.wandb_folder)
            missing = {trial_id: flat for trial_id, flat in ended.items() if trial_id not in present}
            left = _write(store, missing, continued_rows(store.wandb_folder))
            if left:
                what = f"{len(left)} trials were logged to the W&B server before ({some_of(left)})"
                warn(f"{what}: they get no offline runs; polysweep sync completes them")
        elif mode == "online":
            remove_leftovers(Path(tempfile.gettempdir()), FOLDER)
            records = dict(store.records(ended))
            unsure = {t: flat for t, flat in ended.items() if not _is_settled(_record(records.get(t)))}
            if unsure:
                counts = upload(store, unsure)
                if not counts.is_whole:
                    warn(f"{counts}; polysweep sync uploads them")
    except Exception as error:
        what = first_line(error) if isinstance(error, UserError) else f"{type(error).__name__}: {first_line(error)}"
        warn(f"W&B runs are missing ({what}); polysweep sync uploads them")
    finally:
        end_client(EXIT_SECONDS)


def sync(
    name: str, trials: Mapping[str, Flat], store: Store, say: Callable[[str], None], *, again: bool = False
) -> int:
    """`polysweep sync`: upload what the W&B server lacks of a sweep; returns the exit code, 1 if it still lacks some.

    Runs that are known to be deleted there are tried again only with `again`. Raises `UserError` if W&B
    is not logged in or cannot be reached.
    """
    if not logged_in():
        raise UserError("W&B is not logged in: set WANDB_API_KEY, or run wandb login")
    records = dict(store.records(trials))
    damaged = [trial_id for trial_id, record in records.items() if isinstance(record, StoreError)]
    there = {trial_id: trials[trial_id] for trial_id in records if trial_id not in damaged}
    try:
        counts = upload(store, there, again=again)
    finally:
        end_client(EXIT_SECONDS)
    say(f"{name}: {counts}")
    for trial_id in damaged:
        say(f"{trial_id}: its record is damaged, it is not uploaded")
    return 0 if counts.is_whole and not damaged else 1


def _is_settled(record: Mapping[str, Any]) -> bool:
    """Whether nothing is to be uploaded according to the record: the run is complete, or was deleted."""
    status = str(record.get("wandb") or "")
    return status == "online" or status.startswith(DELETED.format(""))


def _record(record: dict[str, Any] | StoreError | None) -> Mapping[str, Any]:
    return record if isinstance(record, dict) else {}


def _write(
    store: Store,
    trials: Mapping[str, Flat],
    after: Mapping[str, int],
    sweeps: Iterable[str] = (),
    is_dropped: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Write offline runs; returns the trials that get none because a server may have some of their rows."""
    left = []
    for trial_id, described in described_trials(store, trials, sweeps).items():
        record = described.record
        if record.get("wandb"):
            left += [trial_id] if record["wandb"] == BEGUN else []
        elif not is_dropped():
            history = store.history(trial_id)
            rows = after.get(trial_id, 0)
            run, ended = described.run(store), record["ended"] or 0
            write_offline(store.wandb_folder, run, history, record["outcome"], ended, rows)
    return left
