"""Measures the trials of one job from their checkpoints, and keeps what was measured."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from polysweep.sweeps.job import ProbeJob
from polysweep.sweeps.store.checkpoints import read_checkpoint
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.probes import ProbeFiles
from polysweep.sweeps.store.provenance import provenance
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.probe.settings import KINDS


def measure(job: ProbeJob) -> tuple[int, list[str]]:
    """Measure the job's trials, of one signature, as the rows of one stack.

    Returns how many are measured now, and of every other trial why not: its checkpoint is missing or damaged. What
    another probe has measured meanwhile is not measured again.
    """
    import torch

    from polysweep.trainer.probe.probe import probe

    torch.set_num_threads(job.threads)
    store, settings = Store(job.store, job.patience), KINDS[job.kind](**job.settings)
    began, problems = time.perf_counter(), []
    checkpoints: dict[str, tuple[Mapping[str, Any], int]] = {}
    for trial_id in job.trials:
        try:
            checkpoints[trial_id] = _checkpoint(store, trial_id)
        except StoreError as error:
            problems.append(f"trial {trial_id} is not measured: {error}")
    kept, _ = ProbeFiles(store.files).read(checkpoints, settings.key)
    there = {trial_id: one for trial_id, one in kept.items() if one["trained"] == checkpoints[trial_id][1]}
    left = {i: one for i, one in checkpoints.items() if i not in there or not settings.is_in(there[i]["columns"])}
    if left:
        configs = [TrialConfig.parse(job.trials[trial_id], recorded=True) for trial_id in left]
        rows = [checkpoint["row"] for checkpoint, _ in left.values()]
        measured = probe(configs, rows, settings, device=job.device, data=job.data)
        seconds = (time.perf_counter() - began) / len(configs)
        for (trial_id, (checkpoint, trained)), values in zip(left.items(), measured, strict=True):
            finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
            columns = {**(there[trial_id]["columns"] if trial_id in there else {}), **finite}
            content = {"epoch": checkpoint["epoch"], "trained": trained, "columns": columns, "seconds": seconds}
            content["provenance"] = provenance(job.device, job.threads)
            ProbeFiles(store.files).write(trial_id, settings.key, content)
    return len(checkpoints), problems


def _checkpoint(store: Store, trial_id: str) -> tuple[Mapping[str, Any], int]:
    """A trial's checkpoint, and how many epochs it has been trained. Raises `StoreError` if there is none to use."""
    record = store.record(trial_id)
    if record is None:
        raise StoreError("it has no record")
    checkpoint, notes = read_checkpoint(store, record)
    if checkpoint is None:
        raise StoreError("; ".join(note.removeprefix("started over: ") for note in notes) or "it has no checkpoint")
    return checkpoint, record["epoch"]
