"""Completes W&B from the Store: offline runs as trials end, and whatever a killed launch left out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sweeps.record import mark_synced
from sweeps.store import Store
from trainer.config import TrialConfig
from trainer.registry import UserError
from trainer.tracking import Mode, Online, describe, offline_runs, remove_leftovers, write_offline

UPLOAD_SECONDS = 600.0
log = logging.getLogger("polysweep.wandb")


class OfflineWriter:
    """Writes the offline run of every trial that ends, in a thread of the launching process.

    One client for all of a sweep's trials: it costs each worker nothing. What it has not written when the process ends,
    the next launch writes.
    """

    def __init__(self, store: Store, configs: Mapping[str, TrialConfig]) -> None:
        self._store = store
        self._configs = configs
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wandb")

    def ended(self, trial_id: str) -> None:
        """Write the run of a trial whose final record is in the Store."""
        self._thread.submit(self._write, trial_id)

    def close(self, *, wait: bool) -> None:
        """Write what is waiting, or drop it."""
        self._thread.shutdown(wait=wait, cancel_futures=not wait)

    def _write(self, trial_id: str) -> None:
        try:
            _write(self._store, {trial_id: self._configs[trial_id]})
        except Exception:
            # W&B mirrors the Store: its troubles never end a sweep, and `complete` tries again, loudly.
            log.info("the offline W&B run of %s was not written", trial_id, exc_info=True)


def complete(ended: Mapping[str, TrialConfig], store: Store, mode: Mode) -> None:
    """Write or upload the runs of `ended` trials that are missing.

    Imports wandb only where something is missing.
    """
    try:
        _complete(ended, store, mode)
    except UserError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        print(f"warning: W&B runs are missing ({type(error).__name__}: {first}); launch again", file=sys.stderr)


def _complete(ended: Mapping[str, TrialConfig], store: Store, mode: Mode) -> None:
    if mode == "offline":
        remove_leftovers(store.wandb_folder)
        present = offline_runs(store.wandb_folder)
        _write(store, {trial_id: config for trial_id, config in ended.items() if trial_id not in present})
    elif mode == "online":
        records = {trial_id: store.record(trial_id) or {} for trial_id in ended}
        missing = {t: config for t, config in ended.items() if records[t].get("wandb") != "online"}
        if missing:
            _upload(store, missing)


def _write(store: Store, trials: Mapping[str, TrialConfig]) -> None:
    for config, tags, record in _described(store, trials):
        run, history = describe(config, tags), store.history(config.trial_id)
        write_offline(store.wandb_folder, run, history, record["outcome"], record["ended"] or 0)


def _upload(store: Store, trials: Mapping[str, TrialConfig]) -> None:
    print(f"completing {len(trials)} runs on the W&B server", file=sys.stderr)
    online = Online(lambda trial_id: mark_synced(store, trial_id))
    for config, tags, record in _described(store, trials):
        online.start(describe(config, tags), store.history(config.trial_id))
        online.finish(config.trial_id, record["outcome"])
    online.drain(UPLOAD_SECONDS)


def _described(
    store: Store, trials: Mapping[str, TrialConfig]
) -> Iterable[tuple[TrialConfig, Sequence[str], Mapping[str, Any]]]:
    """Config, names of the sweeps that contain it, and record of every ended trial."""
    tags = store.sweeps_of(set(trials)) if trials else {}
    for trial_id, config in trials.items():
        record = store.record(trial_id)
        assert record is not None, "only ended trials are mirrored"
        yield config, tags[trial_id], record
