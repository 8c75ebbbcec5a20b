"""From a spec and what the Store knows to trials, their states and the stacks that would start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from typing import Any, Final

from polysweep.sweeps.planning.stacks import StackPlan, stacks_of
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import SweepTrial, by_cell, by_point
from polysweep.sweeps.store.states import State, TrialState, counts_of
from polysweep.trainer.components.plugins import component
from polysweep.trainer.device import device_class

STACKS: Final[Mapping[str, Mapping[str, int]]] = {"cpu": {"resnet8 1x8x8": 9, "mlp 1x8x8": 8}}
"""`stack: auto` by device class, model and shape of an input, from measurements; 1 for what is not in it.

A class is `cpu` or a GPU's name as the driver gives it. CPU: `benchmarks/step.py` on one core; at 8x8 pixels a row of a
stack of 9 costs about six tenths of a stack of one, and wider ones save no more; at 32x32 neither convolutions nor the
perceptron gain anything. A GPU's line comes from `benchmarks/gpu.py`, which prints it.
"""

CONVEX_STACK: Final = 64
"""`stack: auto` of a convex task: `benchmarks/theory.py` finds wider ones faster by a row, but few sweeps fill them."""


@dataclass(frozen=True)
class Plan:
    """A sweep's trials with their states, and the stacks that a launch would start.

    `data` is the folder of the data sets.
    """

    spec: SweepSpec
    states: Mapping[str, TrialState]
    data: str
    trials: list[SweepTrial]  # in the spec's order

    @cached_property
    def stacks(self) -> list[StackPlan]:
        """New and interrupted trials as stacks: rows of one signature, K and epoch, in the spec's order."""
        return [stack for job in self.jobs for stack in job]

    @cached_property
    def jobs(self) -> list[tuple[StackPlan, ...]]:
        """The stacks as they are handed out: one by one, or by point if results decide what is run."""
        if not self.spec.by_points:
            return [(stack,) for stack in self._stacks(self.trials)]
        jobs = (tuple(self._stacks(members)) for members in by_point(self.trials))
        return [job for job in jobs if job]

    def _stacks(self, trials: Sequence[SweepTrial]) -> list[StackPlan]:
        return stacks_of(trials, self.states, self.width)

    @property
    def widths(self) -> dict[str, int]:
        """By signature the K of trials that start."""
        return {trial.signature: self.width(trial) for trial in {t.signature: t for t in self.trials}.values()}

    def width(self, trial: SweepTrial) -> int:
        """K of a trial at its first start."""
        return self._width(trial)[0]

    def _width(self, trial: SweepTrial) -> tuple[int, str]:
        width = self._widths.get(trial.signature)
        if width is None:
            width = self._widths[trial.signature] = stack_width(self.spec, trial, self.data)
        return width

    @cached_property
    def _widths(self) -> dict[str, tuple[int, str]]:
        return {}

    @property
    def notes(self) -> list[str]:
        """Why new trials get a K that one would not expect."""
        new = [trial for trial in self.trials if self.state(trial) == State.NEW]
        new += self.spec.middles if self.proposals_left else []
        return list(dict.fromkeys(note for trial in new if (note := self._width(trial)[1])))

    def state(self, trial: SweepTrial) -> State:
        """The trial's state."""
        return self.states[trial.trial_id].state

    def counts(self) -> dict[str, int]:
        """Trials in all, and by state."""
        return counts_of(self.trials, self.states)

    def cells(self) -> list[dict[str, Any]]:
        """The distinct cells, in the spec's order."""
        return [members[0].cell for members in self.members]

    @cached_property
    def members(self) -> list[list[SweepTrial]]:
        """The trials of each cell."""
        return by_cell(self.trials)

    @property
    def proposals_left(self) -> int:
        """Points that a bayes sweep has still to propose."""
        proposed = len(self.spec.suggestions)
        return max(0, (self.spec.points or 0) - proposed) if self.spec.method == "bayes" else 0

    @cached_property
    def to_propose(self) -> list[StackPlan]:
        """Stand-ins for the stacks of the points that bayes has still to propose: of each variant in turn."""
        stacks_of_point = [
            [StackPlan((trial,), self.width(trial), 0)] * math.ceil(len(self.spec.seeds) / self.width(trial))
            for trial in self.spec.middles
        ]
        return [stack for point in islice(cycle(stacks_of_point), self.proposals_left) for stack in point]

    def as_json(self) -> dict[str, Any]:
        """The object that `plan --json` prints."""
        return {
            "sweep": self.spec.name,
            "counts": self.counts(),
            "cells": self.cells(),
            "trials": [
                {
                    "trial_id": trial.trial_id,
                    "cell": trial.cell,
                    "config": trial.config.canonical(),
                    "state": self.state(trial),
                }
                for trial in self.trials
            ],
            "stacks": [[trial.trial_id for trial in stack.trials] for stack in self.stacks],
        }


def plan(
    spec: SweepSpec, states: Mapping[str, TrialState], data: str = "", trials: Sequence[SweepTrial] | None = None
) -> Plan:
    """The plan of `spec`, or of some of its `trials`. Trials that are not among `states` are new."""
    chosen = spec.trials if trials is None else list(trials)
    return Plan(spec, {trial.trial_id: states.get(trial.trial_id, TrialState()) for trial in chosen}, data, chosen)


def stack_width(spec: SweepSpec, trial: SweepTrial, data: str = "") -> tuple[int, str]:
    """K of a trial at its first start, and a note if it is not what one would expect.

    It does not depend on how many trials are left, so neither do the numbers.
    """
    width, note = _asked_width(spec, trial)
    if width == 1:
        return width, note
    from polysweep.trainer.rehearsal import refusal

    reason = refusal(trial.config, data)
    return (1, f"{reason}: K = 1") if reason else (width, note)


def _asked_width(spec: SweepSpec, trial: SweepTrial) -> tuple[int, str]:
    """K as the spec asks for it, before it is known whether the parts can be stacked."""
    if spec.launch.stack != "auto":
        return spec.launch.stack, ""
    if spec.by_points:
        return len(spec.seeds), ""
    task = component("task", trial.config.task)
    if task.problem:
        return CONVEX_STACK, ""
    device = device_class() if spec.launch.gpus else "cpu"
    if device not in STACKS:
        return 1, f"stack: auto has no measurement for {device}: K = 1; see benchmarks/gpu.py, or set launch.stack"
    shape = "x".join(map(str, task.input_shape))
    return STACKS[device].get(f"{trial.config.model} {shape}", 1), ""
