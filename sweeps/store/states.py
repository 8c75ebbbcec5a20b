"""Where a trial stands: the words for it, and what the Store knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from polysweep.sweeps.spec.sweep import SweepTrial


class State(StrEnum):
    """Where a trial stands. A record has one of the last five as its outcome; each equals its word."""

    NEW = "new"  # without a record
    INTERRUPTED = "interrupted"  # its record says `running`, but nobody runs it
    RUNNING = "running"
    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"
    STOPPED = "stopped"  # by early termination


FINAL: Final = (State.FINISHED, State.DIVERGED, State.FAILED, State.STOPPED)


@dataclass(frozen=True)
class TrialState:
    """What the Store knows of a trial: `width` is the K of its first start, `epoch` that of its checkpoint."""

    state: State = State.NEW
    width: int | None = None
    epoch: int = 0
    holder: str = ""  # who runs it, if its state is `running`
    generation: int = 0  # of the claim that this state goes by
    elsewhere: bool = False  # whether the holder is on another machine, so that only its heartbeat tells
    damage: str = ""  # what is wrong with its record, which then counts as failed


def counts_of(trials: Iterable[SweepTrial], states: Mapping[str, TrialState]) -> dict[str, int]:
    """Trials in all, and by state."""
    tally = Counter(states[trial.trial_id].state for trial in trials)
    return {"trials": tally.total(), **{str(state): tally[state] for state in State}}
