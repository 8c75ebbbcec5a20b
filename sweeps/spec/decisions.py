"""What a sweep's results have decided of it: the candidate of each cell, and looks at the cells that are replicated."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from polysweep.sweeps.spec.sweep import SweepTrial, by_cell

BETTER: Final = "better"
WORSE: Final = "worse"
EQUIVALENT: Final = "equivalent"
BOTH_DIVERGE: Final = "both diverge"
OPEN: Final = "not decided"
Verdict = Literal["better", "worse", "equivalent", "both diverge", "not decided"]


def cell_key(members: Sequence[SweepTrial]) -> str:
    """What a cell's decisions go by: 16 hex digits for its tuning trials, so that a new candidate asks again."""
    tuning = sorted(trial.trial_id for trial in members if not trial.is_added)
    return hashlib.sha256(" ".join(tuning).encode()).hexdigest()[:16]


def by_key(tuning: Sequence[SweepTrial]) -> dict[str, list[SweepTrial]]:
    """The tuning trials of each cell, in the order of the spec."""
    return {cell_key(members): members for members in by_cell(tuning)}


@dataclass(frozen=True)
class Choice:
    """The candidate that the tuning trials of a cell have chosen."""

    cell: str  # `cell_key`
    chosen: str  # the id of its first tuning trial
    values: Mapping[str, Any] = field(default_factory=dict)  # of the cell
    selected: str = ""  # `lr=0.1`
    score: float | None = None  # mean of what chose; None if nothing was to be chosen
    candidates: int = 1
    at: str = ""  # 2026-11-29 20:15 UTC


@dataclass(frozen=True)
class Compared:
    """Two cells at a look: how much better the first is, its interval at the look's bound, and the verdict."""

    cells: tuple[str, str]  # `cell_key`
    better: str  # `polyak`: the first one's value of what is compared
    than: str
    where: str  # what both share: `rho=0.1`
    n: int  # finished seeds of the cell that has fewer
    estimate: float | None  # larger is better; None if a cell has no finished seed
    low: float | None  # None: without end
    high: float | None
    verdict: Verdict
    diverged: tuple[str, str] = ("", "")  # of each cell, `8/8`


@dataclass(frozen=True)
class Look:
    """A look at all comparisons that were still open: `seeds` of each cell, each tested at the level `bound`."""

    number: int  # from 1
    seeds: int
    bound: float
    plan: Mapping[str, Any]  # `fixed_plan`
    comparisons: int  # of the sweep: what the level is shared by
    compared: tuple[Compared, ...]
    at: str = ""

    @property
    def open_cells(self) -> set[str]:
        """The cells of comparisons that it has left open."""
        return {cell for one in self.compared if one.verdict == OPEN for cell in one.cells}


@dataclass(frozen=True)
class Decisions:
    """All of a sweep, as its Store has them."""

    choices: Mapping[str, Choice] = field(default_factory=dict)  # by cell
    looks: Sequence[Look] = ()
    begun: int = 0  # compared trials that had begun when looks were asked for: their results may be known

    def __bool__(self) -> bool:
        return bool(self.choices or self.looks)
