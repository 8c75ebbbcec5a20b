"""From a spec and what the Store knows to trials, their states and the stacks that would start."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from typing import Any

from polysweep.sweeps.planning.stacks import StackPlan, stacks_of
from polysweep.sweeps.planning.widths import Widths
from polysweep.sweeps.spec.added_trials import sizes_of
from polysweep.sweeps.spec.decisions import by_key
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import SweepTrial, by_cell, by_point
from polysweep.sweeps.store.states import State, TrialState, counts_of


@dataclass(frozen=True)
class Plan:
    """A sweep's trials with their states, and the stacks that a launch would start.

    As long as K is to be measured, a stack has one trial.
    """

    spec: SweepSpec
    states: Mapping[str, TrialState]
    widths: Widths
    trials: list[SweepTrial]  # in the spec's order

    @property
    def data(self) -> str:
        """The folder of the data sets."""
        return self.widths.data

    @cached_property
    def stacks(self) -> list[StackPlan]:
        """New and interrupted trials as stacks: rows of one signature, K and epoch, in the spec's order."""
        return [stack for job in self.jobs for stack in job]

    @property
    def measured_stacks(self) -> list[StackPlan]:
        """The stacks whose K is known."""
        unknown = {trial.signature for trial in self.to_measure}
        return [s for s in self.stacks if s.epoch or s.trials[0].signature not in unknown]

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
    def planned_widths(self) -> dict[str, int]:
        """By signature the K of new trials, where it is known."""
        firsts = {trial.signature: trial for trial in self.trials if self.state(trial) == State.NEW}
        unknown = {trial.signature for trial in self.to_measure}
        return {name: self.widths.width(trial) for name, trial in firsts.items() if name not in unknown}

    def width(self, trial: SweepTrial) -> int:
        """K of a trial at its first start."""
        return self.widths.width(trial)

    @cached_property
    def to_measure(self) -> list[SweepTrial]:
        """Of each signature that is to be measured before its trials can start, the first of them."""
        is_shared = self.spec.launch.gpus == "auto"
        starting = (State.NEW, State.INTERRUPTED) if is_shared else (State.NEW,)
        firsts = {t.signature: t for t in reversed(self.trials) if self.state(t) in starting}
        if is_shared and self.proposals_left:
            firsts |= {trial.signature: trial for trial in self.spec.middles}
        return [trial for trial in reversed(firsts.values()) if not self.widths.is_measured(trial)]

    @property
    def notes(self) -> list[str]:
        """Why new trials get a K that one would not expect."""
        new = [trial for trial in self.trials if self.state(trial) == State.NEW]
        new += self.spec.middles if self.proposals_left else []
        return list(dict.fromkeys(note for trial in new if (note := self.widths.fixed(trial)[1])))

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

    @cached_property
    def to_report(self) -> list[StackPlan]:
        """Stand-ins for the stacks of reporting trials whose candidates are still to be chosen."""
        spec = self.spec
        if spec.protocol is None:
            return []
        sizes = sizes_of(spec, spec.tuning_trials, spec.decisions)
        cells, choices = by_key(spec.tuning_trials), spec.decisions.choices
        waiting = [members[0] for cell, members in cells.items() if cell not in choices for _ in range(sizes[cell])]
        return stacks_of(waiting, defaultdict(TrialState), self.width)

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
    spec: SweepSpec,
    states: Mapping[str, TrialState],
    data: str = "",
    trials: Sequence[SweepTrial] | None = None,
    widths: Widths | None = None,
) -> Plan:
    """The plan of `spec`, or of some of its `trials`. Trials that are not among `states` are new.

    `data` is the folder of the data sets; `widths` knows what has been measured of the device.
    """
    chosen = spec.trials if trials is None else list(trials)
    by_id = {trial.trial_id: states.get(trial.trial_id, TrialState()) for trial in chosen}
    return Plan(spec, by_id, widths or Widths(spec, data), chosen)
