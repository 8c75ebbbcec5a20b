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


def measure(job: ProbeJob) -> int:
    """Measure the job's trials, of one signature, as the rows of one stack; returns how many are measured now.

    What another probe has measured meanwhile is not measured again. Raises `StoreError` for a trial whose checkpoint is
    missing or damaged.
    """
    import torch

    from polysweep.trainer.probe.probe import probe

    torch.set_num_threads(job.threads)
    store, settings = Store(job.store, job.patience), KINDS[job.kind](**job.settings)
    began = time.perf_counter()
    checkpoints = {trial_id: _checkpoint(store, trial_id) for trial_id in job.trials}
    there = ProbeFiles(store.files).read(job.trials, settings.key)
    there = {trial_id: one for trial_id, one in there.items() if one["trained"] == checkpoints[trial_id][1]}
    for trial_id, one in there.items():
        if settings.is_in(one["columns"]):
            del checkpoints[trial_id]
    if not checkpoints:
        return len(job.trials)
    configs = [TrialConfig.parse(job.trials[trial_id], recorded=True) for trial_id in checkpoints]
    rows = [checkpoint["row"] for checkpoint, _ in checkpoints.values()]
    measured = probe(configs, rows, settings, device=job.device, data=job.data)
    seconds = (time.perf_counter() - began) / len(configs)
    for (trial_id, (checkpoint, trained)), values in zip(checkpoints.items(), measured, strict=True):
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        columns = {**(there[trial_id]["columns"] if trial_id in there else {}), **finite}
        content = {"epoch": checkpoint["epoch"], "trained": trained, "columns": columns, "seconds": seconds}
        content["provenance"] = provenance(job.device, job.threads)
        ProbeFiles(store.files).write(trial_id, settings.key, content)
    return len(job.trials)


def _checkpoint(store: Store, trial_id: str) -> tuple[Mapping[str, Any], int]:
    """A trial's checkpoint, and how many epochs it has been trained."""
    record = store.record(trial_id)
    checkpoint, notes = (None, ["it has no record"]) if record is None else read_checkpoint(store, record)
    if record is None or checkpoint is None:
        raise StoreError(f"trial {trial_id} cannot be measured: {'; '.join(notes) or 'no checkpoint'}")
    return checkpoint, record["epoch"]
