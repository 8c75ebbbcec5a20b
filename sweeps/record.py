"""What a worker is told to run, and how the record of a trial begins and is completed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sweeps.claims import Claim, Lease
from sweeps.expand import digits
from sweeps.provenance import provenance
from sweeps.states import FINAL
from sweeps.store import Store
from trainer.config import TrialConfig
from trainer.plugins import component

BEGUN: Final = "begun"
"""What a record says under `wandb` once a process has logged the trial to a server: it may have any of its rows."""


@dataclass(frozen=True)
class Job:
    """A stack to run. Plain data: it travels to a worker."""

    store: str
    configs: tuple[Mapping[str, Any], ...]  # canonical
    width: int  # K
    epoch: int = 0  # that the trials are thought to stand at
    sweeps: tuple[str, ...] = ()  # W&B tags of every trial, besides those of other sweeps in the Store
    launch: str = ""  # whose worker this is
    over: Mapping[str, int] = field(default_factory=dict)  # claims seen to be stale, by trial id
    device: str = "cpu"
    data: str = ""  # folder of the data sets
    threads: int = 1
    checkpoint_seconds: float = 1.0
    keep: str = "last"  # or best (by the metric below), or none
    metric: str = "test/top1"
    goal: str = "maximize"
    stop_file: str = ""  # in the Store; its existence asks to stop
    max_failures: int = 3  # times that a trial is tried again after an error of its own
    early: bool = False  # whether the first of `sweeps` may decide that a trial stops
    patience: float = 0.0  # seconds that a call to the Store is repeated while it fails


def mark_wandb(store: Store, trial_id: str, said: str, lease: Lease) -> None:
    """Note in a final record what the W&B server has of the run: `online` (all of it) or `deleted ENTITY/PROJECT`.

    Nothing is noted of a trial that another process runs: its record is that one's.
    """
    claim = store.claim(trial_id, lease)
    if claim is None:
        return
    try:
        record = store.record(trial_id)
        if record is not None and record["outcome"] in FINAL:
            store.write_record(trial_id, {**record, "wandb": said}, claim.fence)
    finally:
        claim.release()


def first_record(old: Mapping[str, Any] | None, config: TrialConfig, claim: Claim, job: Job) -> dict[str, Any]:
    """The record of a trial that starts or is continued here."""
    fresh: dict[str, Any] = {
        "trial_id": config.trial_id,
        "outcome": "running",
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
        from trainer.coverage import problem_for  # numpy is read only where a convex problem is trained

        fresh["constants"] = problem_for(config).constants()
    return {
        **fresh,
        **(old or {}),
        "claim": claim.generation,
        "provenance": provenance(job.device, job.threads),
    }
