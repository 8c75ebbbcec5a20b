"""What was chosen in every cell, and what can be said of it: a selection is the numbers behind a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd

from polysweep.analysis.data.display import Displayed
from polysweep.analysis.data.frames import RunSet, direction, to_python
from polysweep.analysis.tables.statistics import mean_interval
from polysweep.sweeps.planning.welch import (
    LEVEL,
    Candidates,
    Difference,
    Sample,
    difference,
    fewer_is_better,
    more_diverged,
    untested,
)
from polysweep.trainer.history import SPLITS, is_accuracy, shown_number

TABLE_KEYS: Final = ("rho", "scheduler")
CAPPED: Final = 0.5
"""The share of steps at the cap above which a Polyak step size is the constant one, gamma_b."""


@dataclass(frozen=True, repr=False)
class Selection(Displayed):
    """What was chosen, and what it scored.

    `cells`: one row per cell: rho, scheduler, the other fields of the cell, the tuned fields as chosen, `selected`,
    `candidates` (how many), `budget` (runs that the number was chosen from), `seeds`, `n`, `mean`, `std` (sample,
    ddof = 1; NaN for n = 1), how many seeds are `diverged`, `failed`, `stopped`, `missing` and `lost` (diverged or
    stopped), how many of the n are `stalled`, and the share of steps at the cap (`cap_share`); and of the choice:
    `score` (the winner's mean of what chose), `runner_up`, `margin` (by how much it won, in the direction of the goal;
    NaN without a runner-up), `ties` (other candidates with its score), `edge` (tuned fields whose chosen value is at an
    end of what was tried, or of the range of a drawn search).
    `undecided` says why a cell has no verdict yet, and is empty if it is decided. A cell of several candidates that is
    undecided has no mean; `leading` names those that could still win, and the counts are of the first of them.
    `values`: one row per run of the chosen candidates, with its `value`.
    `candidates`: one row per candidate with its `rank` in the cell, 1 the chosen one, and its `score`.
    """

    pulled: RunSet
    metric: str  # reported
    epoch: str  # best or last
    by: str  # the metric that chose
    cells: pd.DataFrame
    values: pd.DataFrame
    candidates: pd.DataFrame
    samples: Mapping[tuple[str, ...], Mapping[str, Sample]]
    """By `cell_key` and `selected` the reported values of the candidates among which they chose: the chosen one first,
    and those with no more diverged seeds. If another set chose (`val/top1`, of `test/top1`), the chosen one alone. Of
    undecided cells there are none."""

    def headline(self) -> str:
        """`made: test/top1 at the best epoch, 4 cells`."""
        count = len(self.cells)
        cells = "1 cell" if count == 1 else f"{count} cells"
        return f"{self.pulled.protocol.name}: {self.metric} at the {self.epoch} epoch, {cells}"

    def overview(self) -> pd.DataFrame:
        """Per cell the fields that tell it from others, what was chosen, and mean, std and n as in `cells`."""
        fields = dict.fromkeys([*TABLE_KEYS, *self.varying])
        return self.cells[[*fields, "selected", "mean", "std", "n", "seeds"]]

    @property
    def varying(self) -> list[str]:
        """The fields besides rho and scheduler that tell cells apart."""
        return [name for name in self.pulled.protocol.cell if name not in TABLE_KEYS]

    @property
    def of_all_runs(self) -> dict[str, Any]:
        """Optimizer, model, task and weight decay, where cells do not say another: those of the first run."""
        runs = self.pulled.runs
        names = ("optimizer", "model", "task", "weight_decay")
        return {name: to_python(runs[name])[0] if name in runs else None for name in names}

    def key(self, cell: Mapping[Any, Any]) -> tuple[str, ...]:
        """What tells a row of `cells`, `values` or `candidates` that belongs to one cell from those of all others."""
        return tuple([format_value(cell[name]) for name in dict.fromkeys([*TABLE_KEYS, *self.pulled.protocol.cell])])

    def cell_key(self, row: Mapping[Any, Any]) -> tuple[str, ...]:
        """What all candidates of one cell share, also where the radius or the scheduler is tuned."""
        return tuple([format_value(row[name]) for name in self.pulled.protocol.cell])

    def samples_of(self, cell: Mapping[Any, Any]) -> Candidates:
        """The `samples` of a row of `cells`."""
        return list(self.samples.get(self.cell_key(cell), {}).values())

    def difference(
        self, plus: Sequence[Mapping[Any, Any]], minus: Sequence[Mapping[Any, Any]], *, by: float = 0.0
    ) -> Difference:
        """How much better the cells `plus` are than the cells `minus`: `statistics.difference`, larger is better.

        The p values are of its being more, or less, than `by`.
        The means are of the seeds that finished. A side of which more seeds have diverged is never shown to be the
        better one. A cell whose seeds have all diverged has no mean: with two cells Fisher's test compares the counts.
        """
        cells = [*plus, *minus]
        if any(cell["undecided"] for cell in cells):
            return untested("undecided")
        if not all(cell["n"] for cell in cells):
            counts = [(int(cell["n"]), int(cell["diverged"])) for cell in cells]
            if len(cells) != 2 or not all(sum(count) for count in counts) or (by and cells[0]["n"]):
                return untested("a cell has no finished seed")  # by how much a mean is above none cannot be said
            return self._for_looks(more_diverged(*counts))
        one, other = ([self._signed(self.samples_of(cell)) for cell in side] for side in (plus, minus))
        lost, others_lost = (sum(cell["diverged"] for cell in side) for side in (plus, minus))
        raised = [[sample._replace(mean=sample.mean + by) for sample in other[0]], *other[1:]]
        gap = self.tested(one, raised)
        gap = gap._replace(estimate=gap.estimate + by, low=gap.low + by, high=gap.high + by)
        return _not_better(gap, above=lost > others_lost, below=others_lost > lost)

    def over_all(self, cell: Mapping[Any, Any], others: Sequence[Mapping[Any, Any]]) -> Difference:
        """How much better a cell is than the best of `others`: above all of them, or below one of them."""
        if any(one["undecided"] for one in (cell, *others)):
            return untested("undecided")
        alive = [other for other in others if other["n"] and cell["n"]]
        by_count = [self.difference([cell], [other]) for other in others if other not in alive]
        tested = [one for one in by_count if not math.isnan(one.p_above)]
        if not alive:
            return tested[0]._replace(
                p_above=max(one.p_above for one in tested) if len(tested) == len(others) else 1.0,
                p_below=min(1.0, len(tested) * min(one.p_below for one in tested)),
            ) if tested else by_count[0]  # fmt: skip
        own = [self._signed(self.samples_of(cell))]
        gap = self.tested(own, [self._union(alive)])
        no_worse = [other for other in alive if other["diverged"] <= cell["diverged"]]
        below = self.tested(own, [self._union(no_worse)]).p_below if no_worse else 1.0
        is_behind = any(other["diverged"] < cell["diverged"] for other in alive)
        above = max([1.0 if is_behind else gap.p_above, *(one.p_above for one in tested)])
        return gap if math.isnan(gap.p_above) else gap._replace(p_above=above, p_below=below)

    def tested(self, plus: Sequence[Candidates], minus: Sequence[Candidates]) -> Difference:
        """`welch.difference` of these samples, for all looks of a replication."""
        return self._for_looks(difference(plus, minus, LEVEL / self.pulled.protocol.looks))

    def _for_looks(self, gap: Difference) -> Difference:
        """If seeds were added look by look, results may have ended them at each look: a p value counts for all."""
        above, below = (min(1.0, self.pulled.protocol.looks * p) for p in (gap.p_above, gap.p_below))
        return gap if math.isnan(gap.p_above) else gap._replace(p_above=above, p_below=below)

    def _union(self, cells: Sequence[Mapping[Any, Any]]) -> Candidates:
        """The candidates of several cells as those of one, the best first."""
        return sorted((sample for cell in cells for sample in self._signed(self.samples_of(cell))), reverse=True)

    def by_candidate(self, cell: Mapping[Any, Any], column: str, missing: float) -> Candidates:
        """Another column of `runs` of the candidates behind `samples_of`, in their order; `missing` for no value."""
        chosen = self.samples.get(self.cell_key(cell), {})
        finished: dict[str, list[float]] = {name: [] for name in chosen}
        for run in self.finished_runs(cell):
            name = chosen_text(run, self.pulled.protocol.tuned)
            if name in finished:
                value = run[column]
                finished[name].append(missing if format_value(value) == "-" else float(value))
        return [Sample.of(values) for values in finished.values()]

    def finished_runs(self, cell: Mapping[Any, Any]) -> Sequence[Mapping[Any, Any]]:
        """The finished runs of all candidates of a cell; with a protocol those that report."""
        return self._finished_runs.get(self.cell_key(cell), ())

    @cached_property
    def _finished_runs(self) -> dict[tuple[str, ...], list[Mapping[Any, Any]]]:
        runs = self.pulled.runs
        if self.pulled.protocol.roles:
            runs = runs[runs["is_added"]]
        by_cell: dict[tuple[str, ...], list[Mapping[Any, Any]]] = {}
        for run in runs[runs["outcome"] == "finished"].to_dict("records"):
            by_cell.setdefault(self.cell_key(run), []).append(run)
        return by_cell

    def _signed(self, samples: Candidates) -> Candidates:
        return samples if self.is_maximal else fewer_is_better(samples)

    def interval(self, cell: Mapping[Any, Any]) -> tuple[float, float]:
        """Student's 95 % interval of a cell's mean (`statistics.mean_interval`); NaN for fewer than two seeds."""
        samples = self.samples_of(cell)
        if not samples or samples[0].n < 2:
            return math.nan, math.nan
        low, high = mean_interval(samples[0], len(samples), LEVEL / self.pulled.protocol.looks)
        return (max(low, 0.0), min(high, 1.0)) if is_accuracy(self.metric) else (low, high)

    @property
    def on_test(self) -> bool:
        """Whether the test set chose the epoch or a tuned parameter."""
        return self.selected_on == "test"

    @property
    def selected_on(self) -> str:
        """The set that chose the epoch or a tuned parameter: train, val or test; `nothing` where neither was chosen."""
        chosen = self.epoch == "best" or bool(self.pulled.protocol.tuned)
        head, slash, _ = self.by.partition("/")
        return (head if slash and head in SPLITS else self.by) if chosen else "nothing"

    @property
    def is_maximal(self) -> bool | None:
        """Whether a larger value of the reported metric is better; None if unknown: then no cell is the best."""
        return direction(self.metric, self.pulled.protocol)


def _not_better(gap: Difference, *, above: bool, below: bool) -> Difference:
    """A difference of which one direction is not to be claimed, whatever the means."""
    if above and not math.isnan(gap.p_above):
        gap = gap._replace(p_above=1.0, low=-math.inf)
    if below and not math.isnan(gap.p_below):
        gap = gap._replace(p_below=1.0, high=math.inf)
    return gap


def number(value: float, metric: str) -> str:
    """Percent with two decimals for an accuracy, else four decimals; three digits of what these would hide."""
    if is_accuracy(metric):
        return f"{100 * value:.2f}"
    return shown_number(value)


def format_value(value: Any) -> str:
    """A field's value in a table, `-` where it does not apply."""
    return "-" if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)) else str(value)


def chosen_fields(run: Mapping[Any, Any], tuned: Sequence[str]) -> dict[str, Any]:
    """The tuned fields that apply to a run."""
    return {name: run[name] for name in tuned if format_value(run[name]) != "-"}


def chosen_text(run: Mapping[Any, Any], tuned: Sequence[str]) -> str:
    return " ".join(f"{name}={value}" for name, value in chosen_fields(run, tuned).items())
