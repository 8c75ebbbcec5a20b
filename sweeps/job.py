"""What travels between the driver and its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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


@dataclass(frozen=True)
class RowProgress:
    """Where one trial stands after an epoch."""

    trial_id: str
    epoch: int
    outcome: str
    history: Mapping[str, Any]
