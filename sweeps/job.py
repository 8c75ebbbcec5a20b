"""What travels: a launch's options to its driver, jobs to its workers, and the progress of trials back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polysweep.trainer.curve import Curve, Width
from polysweep.trainer.wandb_client import Mode


@dataclass(frozen=True)
class LaunchOptions:
    """What a launch is told besides its spec and its Store. Plain data: it travels to a driver on a cluster's head."""

    wandb: Mode
    data_dir: str | None = None  # folder of the data sets
    verbose: bool = False
    extend: bool = False
    retry_failed: bool = False
    address: str | None = None  # of a cluster; None: a Ray of this process's own
    insecure: bool = False
    wandb_sweep: bool = False  # whether it is registered as a W&B Sweep
    launch_id: str = ""  # by which the launch can be told to stop, if its client has chosen it


@dataclass(frozen=True)
class Job:
    """A stack to run. Plain data: it travels to a worker."""

    store: str
    configs: tuple[Mapping[str, Any], ...]  # canonical
    width: int  # K
    epoch: int = 0  # at which the trials stand, as far as the driver knows
    sweeps: tuple[str, ...] = ()  # W&B tags of every trial, besides those of other sweeps in the Store
    launch: str = ""  # whose worker this is
    supersedes: Mapping[str, int] = field(default_factory=dict)  # by trial id, the claim that was seen to be stale
    device: str = "cpu"
    data: str = ""  # folder of the data sets
    threads: int = 1
    checkpoint_seconds: float = 1.0
    keep: str = "last"  # or best (by the metric below), or none
    metric: str = "test/top1"
    goal: str = "maximize"
    stop_file: str = ""  # in the Store; if it exists, the worker stops
    max_failures: int = 3  # how often a trial is retried after an error of its own
    early: bool = False  # whether the first of `sweeps` may decide that a trial stops
    patience: float = 0.0  # seconds that a call to the Store is repeated while it fails


@dataclass(frozen=True)
class ProbeJob:
    """Ended trials of one signature that are to be measured. Plain data: it travels to a worker."""

    store: str
    trials: Mapping[str, Mapping[str, Any]]  # by id, its config
    kind: str  # of `trainer.probe.settings.KINDS`
    settings: Mapping[str, Any]
    device: str = "cpu"
    data: str = ""
    threads: int = 1
    patience: float = 0.0


@dataclass(frozen=True)
class RowProgress:
    """Where one trial stands after an epoch."""

    trial_id: str
    epoch: int
    outcome: str
    history: Mapping[str, Any]


def measurement_name(signature: str, width: int | None, *, is_shared: bool) -> str:
    """By which a measurement is kept: its signature, its K if that is fixed, and whether a share was measured."""
    return signature + ("" if width is None else f"-{width}") + ("-shared" if is_shared else "")


@dataclass(frozen=True)
class CalibrationJob:
    """What is to be measured of a signature on a worker's device: K, the share of a GPU, or both."""

    store: str
    signature: str
    config: Mapping[str, Any]  # canonical, of one of its trials
    width: int | None  # K if it is fixed
    is_shared: bool  # whether the share of the GPU is to be measured
    device: str = "cpu"
    data: str = ""
    threads: int = 1
    patience: float = 0.0

    @property
    def name(self) -> str:
        """By which the measurement is kept."""
        return measurement_name(self.signature, self.width, is_shared=self.is_shared)


@dataclass(frozen=True)
class Calibration:
    """A measurement: K, and the share of a GPU if that was asked for, with the figures that they were chosen from."""

    device: str  # model, and threads of a CPU
    signature: str
    width: int  # K, if all of the memory is for one stack
    share: float | None  # of a GPU
    widths: Sequence[Mapping[str, Any]]  # by K seconds per row and step, and bytes
    shares: Mapping[str, float]  # by the number of stacks side by side, rows and steps a second
    free: int  # bytes that were free
    seconds: float  # that it took
    time: float  # when, in seconds since 1970

    @property
    def curve(self) -> Curve:
        """The widths that were measured."""
        return Curve(tuple(Width(one["width"], one["seconds"], one["memory"]) for one in self.widths), self.free)
