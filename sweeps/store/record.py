"""How the record of a trial begins, and what is noted in it after the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from polysweep.sweeps.job import Job
from polysweep.sweeps.spec.expansion import digits
from polysweep.sweeps.store.claims import Claim, Lease
from polysweep.sweeps.store.provenance import provenance
from polysweep.sweeps.store.states import FINAL, State
from polysweep.sweeps.store.store import Store
from polysweep.trainer.components.plugins import component, own_sources
from polysweep.trainer.config import TrialConfig

BEGUN: Final = "begun"
"""The value of `wandb` in a record once the trial is logged to a server, which then may have some of its rows."""


def mark_wandb(store: Store, trial_id: str, status: str, lease: Lease) -> None:
    """Note in a final record what the W&B server has of the run: `online` (all of it) or `deleted ENTITY/PROJECT`.

    Nothing is noted of a trial that another process runs: its record is that one's.
    """
    claim = store.claim(trial_id, lease)
    if claim is None:
        return
    try:
        record = store.record(trial_id)
        if record is not None and record["outcome"] in FINAL:
            store.write_record(trial_id, {**record, "wandb": status}, claim.fence)
    finally:
        claim.release()


def first_record(old: Mapping[str, Any] | None, config: TrialConfig, claim: Claim, job: Job) -> dict[str, Any]:
    """The record of a trial that starts or is continued here."""
    fresh: dict[str, Any] = {
        "trial_id": config.trial_id,
        "outcome": State.RUNNING.value,
        "width": job.width,
        "epoch": 0,
        "epochs": config.epochs,
        "started": time.time(),
        "ended": None,
        "seconds": 0.0,
        "error": None,
        "diverged": None,
        "stalled": False,
        "wandb": None,
        "failures": 0,
        "extremes": {},
        "signature": digits(config.signature),
        "sessions": [],
        "notes": [],
    }
    if component("task", config.task).problem:
        from polysweep.trainer.convex.coverage import problem_for

        fresh["constants"] = problem_for(config).constants()
    sources = own_sources(config.flat())
    return {
        **fresh,
        **(old or {}),
        "claim": claim.generation,
        "provenance": {**provenance(job.device, job.threads), **({"sources": sources} if sources else {})},
    }
