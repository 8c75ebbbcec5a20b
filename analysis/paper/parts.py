"""The sweeps of the paper, and what stands for each in its rehearsal. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polysweep
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.yaml_lines import read_yaml, to_yaml
from polysweep.trainer.components.corruptions import ALL
from polysweep.trainer.probe.settings import CorruptionSettings, CurvatureSettings, Measurement

SPECS: Final = Path(polysweep.__file__).parent / "sweeps" / "specs"
PREFIX: Final = "rehearsal-"
"""Before the name of a sweep in the rehearsal."""

CURVATURE: Final = CurvatureSettings()
CORRUPTIONS: Final = CorruptionSettings(corruptions=tuple(f"{one.name}-{one.severity}" for one in ALL))
SMALL_CURVATURE: Final = CurvatureSettings(images=256, steps=12, vectors=6)
"""Of the rehearsal, whose models are small."""
PERCEPTRON: Final[Mapping[str, Any]] = {
    "task": {"value": "digits"},
    "model": {"value": "mlp"},
    "model_options.hidden": {"value": 16},
    "batch_size": {"value": 128},
    "epochs": {"value": 20},
}
"""A perceptron on the digits, in place of a ResNet on CIFAR."""


@dataclass(frozen=True)
class Part:
    """One sweep: the file in `sweeps/specs`, and the parameters that are replaced in it."""

    name: str
    file: str
    title: str
    replaced: Mapping[str, Any] = field(default_factory=dict)
    rehearsed: Mapping[str, Any] = field(default_factory=dict)  # in the rehearsal, after `replaced`
    measurements: tuple[Measurement, ...] = ()
    rehearsed_measurements: tuple[Measurement, ...] = ()

    def spec(self, *, is_rehearsal: bool) -> SweepSpec:
        """The sweep's spec; without anything replaced it is the file itself."""
        path = SPECS / f"{self.file}.yaml"
        text = path.read_text()
        changes = {**self.replaced, **(self.rehearsed if is_rehearsal else {})}
        name = PREFIX + self.name.removeprefix("paper-") if is_rehearsal else self.name
        if changes or name != self.file:
            data, _ = read_yaml(text, str(path))
            assert isinstance(data, dict)
            data |= {"name": name, "parameters": {**data["parameters"], **changes}}
            if is_rehearsal:
                data["launch"] = {"stack": STACK, "checkpoint_seconds": 60}
            what = "in small, for `polysweep paper --rehearsal`" if is_rehearsal else "as `polysweep paper` runs it"
            text = f"# {self.title}: {path.name} {what}.\n{to_yaml(data)}\n"
        return SweepSpec.parse(text, f"{name}.yaml", name)

    def measured(self, *, is_rehearsal: bool) -> tuple[Measurement, ...]:
        """What is measured of its trained trials."""
        return self.rehearsed_measurements if is_rehearsal else self.measurements


STACK: Final = 32
"""Trials per stack in the rehearsal: a perceptron's step costs little more for 32 rows than for one."""
CIFAR: Final = Part(
    "paper-cifar",
    "paper-cifar",
    "The CIFAR tables",
    rehearsed={
        **PERCEPTRON,
        "model_options.layers": {"values": [1, 2]},  # ResNet-20 and ResNet-32
        "val_fraction": {"values": [0.0, 0.5]},  # CIFAR-10, and CIFAR-100: half of the images make it harder
    },
    measurements=(CURVATURE, CORRUPTIONS),
    rehearsed_measurements=(SMALL_CURVATURE, CORRUPTIONS),
)
STANDS_FOR: Final[Mapping[str, Mapping[Any, str]]] = {
    "model": {1: "resnet20", 2: "resnet32"},
    "task": {0.0: "cifar10", 0.5: "cifar100"},
}
"""Of the rehearsal, by field of the paper what each value of `STAND_IN` is called in its tables."""
STAND_IN: Final = {"model": "model_options.layers", "task": "val_fraction"}
THEORY: Final = tuple(
    Part(name, name, title, rehearsed={"epochs": {"value": 40}, "task_options.record_every": {"value": 50}})
    for name, title in {
        "theory-deterministic": "Synthetic ridge regression, deterministic",
        "theory-stochastic": "Synthetic ridge regression, stochastic",
        "adaptive-deterministic": "Comparison with adaptive SAM optimizers, deterministic",
        "adaptive-stochastic": "Comparison with adaptive SAM optimizers, stochastic",
    }.items()
)
NOISE: Final = Part(
    "paper-noise",
    "paper-noise",
    "Noisy labels",
    rehearsed=PERCEPTRON,
    measurements=(CURVATURE,),
    rehearsed_measurements=(SMALL_CURVATURE,),
)
FAMILY: Final = Part(
    "paper-family",
    "sam-family",
    "The SAM family",
    replaced={
        "task": {"value": "cifar10"},
        "model": {"value": "resnet20"},
        "batch_size": {"value": 128},
        "epochs": {"value": 100},
    },
    rehearsed=PERCEPTRON,
    measurements=(CURVATURE,),
    rehearsed_measurements=(SMALL_CURVATURE,),
)
PARTS: Final = (CIFAR, *THEORY, NOISE, FAMILY)
