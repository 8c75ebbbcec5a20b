"""Which trials are trained together: rows of one signature, K and epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.store.states import State, TrialState


@dataclass(frozen=True)
class StackPlan:
    """Trials to train as one stack of K = `width` from `epoch` on; the stack is padded if they are fewer."""

    trials: tuple[SweepTrial, ...]
    width: int
    epoch: int


def stacks_of(
    trials: Iterable[SweepTrial], states: Mapping[str, TrialState], width_of: Callable[[SweepTrial], int]
) -> list[StackPlan]:
    """New and interrupted trials as stacks, in the order of the trials; `width_of` gives the K of a new one."""
    groups: dict[tuple[str, int, int], list[SweepTrial]] = {}
    for trial in trials:
        state = states[trial.trial_id]
        if state.state in (State.NEW, State.INTERRUPTED):
            width = state.width or width_of(trial)
            groups.setdefault((trial.signature, width, state.epoch), []).append(trial)
    return [
        StackPlan(tuple(members[start : start + width]), width, epoch)
        for (_, width, epoch), members in groups.items()
        for start in range(0, len(members), width)
    ]
