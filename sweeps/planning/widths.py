"""K of a trial at its first start: as the spec says, or as it was measured on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from polysweep.sweeps.job import Calibration, CalibrationJob, measurement_name
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.store.store import Store
from polysweep.trainer.components.plugins import component
from polysweep.trainer.cpus import usable_cpus
from polysweep.trainer.device import kind_of_device

CONVEX_STACK: Final = 64
"""`stack: auto` of a convex task: `benchmarks/theory.py` finds wider ones faster by a row, but few sweeps fill them."""
NEAR: Final = 0.25
"""How far K may be from the measured one, as a share of it, so that seeds fill the stacks."""


@dataclass
class Widths:
    """The K of a sweep's new trials. It does not depend on how many are left, so neither do the numbers.

    `data` is the folder of the data sets, `measured` what is known of the device, by `CalibrationJob.name`; also what
    the `store`, if there is one, has of this machine's kind of device.
    """

    spec: SweepSpec
    data: str = ""
    measured: dict[str, Calibration | None] = field(default_factory=dict)  # None: it could not be
    store: Store | None = None
    _fixed: dict[str, tuple[int | None, str]] = field(default_factory=dict, init=False)  # by signature
    _absent: set[str] = field(default_factory=set, init=False)  # from the Store

    def fixed(self, trial: SweepTrial) -> tuple[int | None, str]:
        """K if none is measured for it, else None; and a note if it is not what one would expect."""
        if trial.signature not in self._fixed:
            self._fixed[trial.signature] = _fixed_width(self.spec, trial, self.data)
        return self._fixed[trial.signature]

    def width(self, trial: SweepTrial) -> int:
        """K of a trial at its first start; 1 as long as it is to be measured."""
        fixed = self.fixed(trial)[0]
        if fixed is not None:
            return fixed
        measurement = self._measurement(trial)
        if measurement is None:
            return 1
        curve, share = measurement.curve, self._share(measurement)
        return fitted(curve.best(share), len(self.spec.seeds), lambda width: curve.fits(width, share))

    def _share(self, measurement: Calibration) -> float:
        """Of the device's memory, what one stack may use: of a CPU's, as many share it as there are cores for."""
        launch = self.spec.launch
        if not launch.gpus:
            return min(1.0, launch.cpus / usable_cpus())
        return min(1.0, (measurement.share or 1.0) if launch.gpus == "auto" else launch.gpus)

    def gpus(self, trial: SweepTrial) -> float:
        """The GPUs of the trial's stack; one as long as no share of one was measured."""
        gpus = self.spec.launch.gpus
        if gpus != "auto":
            return gpus
        # A point that bayes has proposed may be the first of its signature: it takes another one's share.
        candidates = [self._measurement(trial), *self.measured.values()]
        return next((one.share for one in candidates if one and one.share), 1.0)

    def is_measured(self, trial: SweepTrial) -> bool:
        """Whether nothing has to be measured before the trial can start."""
        return not self._is_asked(trial) or bool(self._measurement(trial)) or self._name(trial) in self.measured

    def measurement(self, trial: SweepTrial, store: str, patience: float = 0.0) -> CalibrationJob:
        """What one worker measures for all trials of this one's signature."""
        launch = self.spec.launch
        return CalibrationJob(
            store=store,
            signature=trial.signature,
            config=trial.config.canonical(),
            width=self.fixed(trial)[0],
            is_shared=launch.gpus == "auto",
            device=launch.device,
            data=self.data,
            threads=launch.cpus,
            patience=patience,
        )

    def _measurement(self, trial: SweepTrial) -> Calibration | None:
        """What was measured of the trial's signature; the Store is asked once."""
        name = self._name(trial)
        if self.store is not None and name not in self.measured and name not in self._absent:
            kind = kind_of_device(self.spec.launch.device, self.spec.launch.cpus, imports=False)
            kept = self.store.calibrations.read(kind, name)
            if kept is None:
                self._absent.add(name)
            else:
                self.measured[name] = kept
        return self.measured.get(name)

    def _is_asked(self, trial: SweepTrial) -> bool:
        return self.fixed(trial)[0] is None or self.spec.launch.gpus == "auto"

    def _name(self, trial: SweepTrial) -> str:
        return measurement_name(trial.signature, self.fixed(trial)[0], is_shared=self.spec.launch.gpus == "auto")

    def lines(self, trials: Iterable[SweepTrial]) -> list[str]:
        """For each signature among the trials whose K or share is measured, what was, or that it will be."""
        lines = {}
        for trial in trials:
            name = self._name(trial)
            if name not in lines and self._is_asked(trial):
                model, task = trial.config.model, trial.config.task
                lines[name] = f"{model} on {task}: {self._in_words(trial, self._measurement(trial))}"
        return list(lines.values())

    def _in_words(self, trial: SweepTrial, measurement: Calibration | None) -> str:
        asked = [] if self.fixed(trial)[0] else ["K"]
        asked += ["GPUs per stack"] if self.spec.launch.gpus == "auto" else []
        values = {"K": self.width(trial), "GPUs per stack": f"{self.gpus(trial):g}"}
        if not self.is_measured(trial):
            return f"{' and '.join(asked)} will be measured by the first worker"
        if measurement is None:
            return f"{', '.join(f'{what} = {values[what]}' for what in asked)}, because it could not be measured"
        costs = ", ".join(f"{1e3 * one['seconds']:.3g} ms at {one['width']}" for one in measurement.widths)
        return (
            f"{', '.join(f'{what} = {values[what]}' for what in asked)}, measured on {measurement.device} "
            f"(a step of a row: {costs})"
        )


def fitted(width: int, seeds: int, fits: Callable[[int], bool] = lambda _: True) -> int:
    """The K nearest to a measured one at which a candidate's seeds fill whole stacks, or a stack whole candidates."""
    near = range(math.ceil((1 - NEAR) * width), math.floor((1 + NEAR) * width) + 1)
    even = [k for k in near if (k % seeds == 0 or seeds % k == 0) and fits(k)]
    return min(even, key=lambda k: (abs(k - width), k), default=width)


def _fixed_width(spec: SweepSpec, trial: SweepTrial, data: str) -> tuple[int | None, str]:
    """See `Widths.fixed`."""
    width: int | None = None
    if spec.launch.stack != "auto":
        width = spec.launch.stack
    elif spec.by_points:
        width = len(spec.seeds)
    elif component("task", trial.config.task).problem:
        width = CONVEX_STACK
    if width == 1:
        return width, ""
    from polysweep.trainer.rehearsal import refusal

    reason = refusal(trial.config, data)
    return (1, f"{reason}: K = 1") if reason else (width, "")
