"""From a spec and what the Store knows to trials, their states and the stacks that would start. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sweeps.spec import SweepSpec, SweepTrial

State = Literal["new", "interrupted", "running", "finished", "diverged", "failed", "stopped"]
FINAL: Final = ("finished", "diverged", "failed", "stopped")
STATES: Final[tuple[State, ...]] = (
    "new",
    "interrupted",
    "running",
    "finished",
    "diverged",
    "failed",
    "stopped",
)

CPU_STACK: Final[Mapping[str, int]] = {"resnet8": 9, "mlp": 8}
"""`stack: auto` on a CPU, by model; 1 for the others. `benchmarks/step.py` measures it on one core: at 8x8 pixels a
row of a stack of 9 costs about six tenths of a stack of one, and wider ones save no more; at 32x32 stacks of
convolutions do not pay on a CPU."""


@dataclass(frozen=True)
class TrialState:
    """What the Store knows of a trial: `width` is the K of its first start, `epoch` that of its checkpoint."""

    state: State = "new"
    width: int | None = None
    epoch: int = 0
    holder: str = ""  # who runs it, where its state is `running`
    generation: int = 0  # of the claim that was looked at for this
    elsewhere: bool = False  # whether the holder is on another machine, so that only its heartbeat tells


@dataclass(frozen=True)
class StackPlan:
    """Trials to train as one stack of K = `width` from `epoch` on; the stack is padded where they are fewer."""

    trials: tuple[SweepTrial, ...]
    width: int
    epoch: int


@dataclass(frozen=True)
class Plan:
    """A sweep's trials with their states, and the stacks that a launch would start."""

    spec: SweepSpec
    states: Mapping[str, TrialState]
    stacks: tuple[StackPlan, ...]

    @property
    def trials(self) -> list[SweepTrial]:
        """All trials in the spec's order."""
        return self.spec.trials

    def state(self, trial: SweepTrial) -> State:
        """The trial's state."""
        return self.states[trial.trial_id].state

    def counts(self) -> dict[str, int]:
        """Trials in all, and by state."""
        tally = Counter(self.state(trial) for trial in self.trials)
        return {"trials": len(self.trials), **{state: tally[state] for state in STATES}}

    def cells(self) -> list[dict[str, Any]]:
        """The distinct cells, in the spec's order."""
        return list({repr(trial.cell): dict(trial.cell) for trial in self.trials}.values())

    def as_json(self) -> dict[str, Any]:
        """The object that `plan --json` prints."""
        return {
            "sweep": self.spec.name,
            "counts": self.counts(),
            "cells": self.cells(),
            "trials": [
                {
                    "trial_id": trial.trial_id,
                    "cell": dict(trial.cell),
                    "config": trial.config.canonical(),
                    "state": self.state(trial),
                }
                for trial in self.trials
            ],
            "stacks": [[trial.trial_id for trial in stack.trials] for stack in self.stacks],
        }


def plan(spec: SweepSpec, known: Mapping[str, TrialState]) -> Plan:
    """The plan of `spec` where the Store knows the trials `known` by id; others are new.

    New and interrupted trials form stacks: rows of one signature, K and epoch, in the spec's order.
    """
    states = {trial.trial_id: known.get(trial.trial_id, TrialState()) for trial in spec.trials}
    todo = [trial for trial in spec.trials if states[trial.trial_id].state in ("new", "interrupted")]
    return Plan(spec, states, tuple(group(spec, todo, states)))


def group(spec: SweepSpec, trials: list[SweepTrial], states: Mapping[str, TrialState]) -> list[StackPlan]:
    """Stacks of trials that can be rows of one stack: equal signature, K and epoch."""
    groups: dict[tuple[str, int, int], list[SweepTrial]] = {}
    for trial in trials:
        state = states[trial.trial_id]
        width = state.width or stack_width(spec, trial)
        groups.setdefault((trial.config.signature, width, state.epoch), []).append(trial)
    return [
        StackPlan(tuple(members[start : start + width]), width, epoch)
        for (_, width, epoch), members in groups.items()
        for start in range(0, len(members), width)
    ]


def stack_width(spec: SweepSpec, trial: SweepTrial) -> int:
    """K of a trial at its first start. It does not depend on how many trials are left, so neither do the numbers."""
    if spec.launch.stack != "auto":
        return spec.launch.stack
    return CPU_STACK.get(trial.config.model, 1)
