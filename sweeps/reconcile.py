"""Completes W&B from the Store: a launch that was killed may have left it without some runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from sweeps.spec import SweepTrial
from sweeps.store import Store
from sweeps.worker import mark_synced
from trainer.tracking import Mode, Online, describe, offline_runs, remove_leftovers, write_offline

UPLOAD_SECONDS = 600.0


def complete(ended: Sequence[SweepTrial], store: Store, mode: Mode | str, *, idle: bool) -> None:
    """Write or upload the runs of `ended` trials that are missing; `idle` where no other process writes runs.

    Imports wandb only where something is missing.
    """
    if mode == "offline":
        if idle:
            remove_leftovers(store.wandb_folder)
        present = offline_runs(store.wandb_folder)
        _write(store, [trial for trial in ended if trial.trial_id not in present])
    elif mode == "online":
        missing = [t for t in ended if (store.record(t.trial_id) or {}).get("wandb") != "online"]
        if missing:
            _upload(store, missing)


def _write(store: Store, trials: Sequence[SweepTrial]) -> None:
    for trial, tags, outcome in _described(store, trials):
        run = describe(trial.config, tags)
        write_offline(store.wandb_folder, run, store.history(trial.trial_id), outcome)


def _upload(store: Store, trials: Sequence[SweepTrial]) -> None:
    print(f"completing {len(trials)} runs on the W&B server", file=sys.stderr)
    online = Online(lambda trial_id: mark_synced(store, trial_id))
    for trial, tags, outcome in _described(store, trials):
        online.start(describe(trial.config, tags), store.history(trial.trial_id))
        online.finish(trial.trial_id, outcome)
    online.drain(UPLOAD_SECONDS)


def _described(store: Store, trials: Sequence[SweepTrial]) -> Iterable[tuple[SweepTrial, list[str], str]]:
    tags = store.sweeps_of({trial.trial_id for trial in trials})
    for trial in trials:
        record = store.record(trial.trial_id)
        assert record is not None, "only ended trials are completed"
        yield trial, tags[trial.trial_id], record["outcome"]
