"""Where a trial stands: the words for it, and what the Store knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from polysweep.sweeps.spec.sweep import SweepTrial

State = Literal["new", "interrupted", "running", "finished", "diverged", "failed", "stopped"]
FINAL: Final = ("finished", "diverged", "failed", "stopped")
STATES: Final[tuple[State, ...]] = ("new", "interrupted", "running", "finished", "diverged", "failed", "stopped")


@dataclass(frozen=True)
class TrialState:
    """What the Store knows of a trial: `width` is the K of its first start, `epoch` that of its checkpoint."""

    state: State = "new"
    width: int | None = None
    epoch: int = 0
    holder: str = ""  # who runs it, if its state is `running`
    generation: int = 0  # of the claim that was looked at for this
    elsewhere: bool = False  # whether the holder is on another machine, so that only its heartbeat tells
    damage: str = ""  # what is wrong with its record, which then counts as failed


def counts_of(trials: Iterable[SweepTrial], states: Mapping[str, TrialState]) -> dict[str, int]:
    """Trials in all, and by state."""
    tally = Counter(states[trial.trial_id].state for trial in trials)
    return {"trials": tally.total(), **{state: tally[state] for state in STATES}}
