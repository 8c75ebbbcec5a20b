"""What is left of sweeps costs, by class of device: as the Store has measured it, and by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from polysweep.sweeps.job import Calibration
from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.store.store import Store
from polysweep.trainer.components.plugins import component

PEAKS: Final[Mapping[str, float]] = {
    "NVIDIA T4": 8.1,
    "NVIDIA A100": 19.5,
    "NVIDIA L4": 30.3,
    "NVIDIA H100 or H200 (SXM)": 67.0,
    "NVIDIA RTX 4090": 82.6,
    "NVIDIA RTX 6000 Ada (the paper's)": 91.1,
}
"""TFLOPS in float32 without tensor cores, as their makers say."""
REACHED: Final = 0.2
"""The share of the peak that small convolutions are taken to reach."""


def hours_by_class(trials: Sequence[SweepTrial], store: Store) -> list[tuple[str, float, str]]:
    """Device-hours of these trials: class of device, hours, and where the number is from.

    First every device on which the Store has a measurement of each of their signatures; then known classes of GPUs by
    their arithmetic, at a fifth of their peak.
    """
    from polysweep.trainer.flops import training_flops  # which imports torch

    trials = [trial for trial in trials if not component("task", trial.values["task"]).problem]
    flops = sum(training_flops(trial.config) for trial in trials)
    rows = [(device, hours, "measured in this Store") for device, hours in _measured(trials, store)]
    arithmetic = f"arithmetic, {flops:.2g} operations at {REACHED:.0%} of the peak in float32"
    rows += [(name, flops / (REACHED * peak * 1e12) / 3600, arithmetic) for name, peak in PEAKS.items()]
    return rows if trials else []


def _measured(trials: Sequence[SweepTrial], store: Store) -> Iterable[tuple[str, float]]:
    """By device hours, if every signature was measured there."""
    for device in store.files.names("calibration"):
        by_signature: dict[str, Calibration] = {}
        for file in store.files.names(f"calibration/{device}"):
            name, _, ending = file.rpartition(".")
            if ending == "json" and (kept := store.calibrations.read(device, name)):
                by_signature[kept.signature] = kept
        if all(trial.signature in by_signature for trial in trials):
            seconds = sum(_seconds(trial, by_signature[trial.signature]) for trial in trials)
            yield by_signature[trials[0].signature].device if trials else device, seconds / 3600


def _seconds(trial: SweepTrial, calibration: Calibration) -> float:
    task, config = component("task", trial.values["task"]), trial.config
    images = task.train_size - round(config.val_fraction * task.train_size)
    fastest = min(float(one["seconds"]) for one in calibration.widths)
    return config.epochs * math.ceil(images / config.batch_size) * fastest
