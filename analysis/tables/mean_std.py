"""Mean +- std tables: any fields down, any across. Every number with its n wherever a cell is not complete."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from polysweep.analysis.data.frames import names_of
from polysweep.analysis.tables.layout import Layout, key_of, require_one_table
from polysweep.analysis.tables.selection import Selection, number
from polysweep.analysis.tables.statistics import holm
from polysweep.analysis.tables.writers import Entry
from polysweep.sweeps.planning.welch import LEVEL, Difference, p_text, untested
from polysweep.trainer.history import is_accuracy

PUBLISHED_COLUMNS: Final = (
    "optimizer",
    "model",
    "dataset",
    "weight_decay",
    "rho",
    "scheduler",
    "test_accuracy_mean",
    "test_accuracy_std",
    "table",
)
COUNTS: Final = ("diverged", "failed", "stopped", "missing", "stalled")
Show = Callable[[Mapping[Any, Any], bool], Any]


def mean_std_table(
    selection: Selection,
    cells: pd.DataFrame | None = None,
    *,
    rows: str | Sequence[str] | None = None,
    cols: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
    show: Show | None = None,
) -> pd.DataFrame:
    """The table as a frame of text: an index level per field of `by` and `rows`, a column level per field of `cols`.

    `cells` are those of one table (`subtables`), by default all. Each entry is `show(cell, marked)`, by default
    `98.31 +- 0.42 (2/3, 1 diverged)`; `marked` is the best of a row and whatever cannot be told from it, see
    `row_verdicts`. `selection.cells` has the numbers.
    """
    layout = Layout.of(selection, rows, cols, by)
    down = layout.rows if cells is not None else (*layout.by, *layout.rows)
    require_one_table(selection.cells if cells is None else cells, down, layout)
    write: Show = show or (lambda cell, _: cell_text(cell, selection.metric))
    shown = selection.cells if cells is None else cells
    marked = {key for verdict in row_verdicts(selection, shown, replace(layout, rows=down)) for key in verdict.marked}
    grid: dict[tuple[str, ...], dict[tuple[str, ...], Any]] = {}
    records = shown.to_dict("records")
    for cell in records:
        row, column = key_of(cell, down), key_of(cell, layout.cols)
        entries = grid.setdefault(row, {})
        entries[column] = write(cell, selection.key(cell) in marked)
    columns = list(dict.fromkeys(key_of(cell, layout.cols) for cell in records))
    data = [[entries.get(column, "-") for column in columns] for entries in grid.values()]
    return pd.DataFrame(data, index=_index(list(grid), down), columns=_index(columns, layout.cols))


def _index(keys: Sequence[tuple[str, ...]], names: Sequence[str]) -> pd.Index:
    if len(names) == 1:
        return pd.Index([key[0] for key in keys], name=names[0])
    return pd.MultiIndex.from_tuples(list(keys), names=list(names)) if names else pd.Index([""] * len(keys))


def cell_text(cell: Mapping[Any, Any], metric: str) -> str:
    """`98.31 +- 0.42 (2/3, 1 diverged)`; without the parenthesis if every seed has finished and moved to the end."""
    return str(cell_entry(cell, metric))


def cell_entry(
    cell: Mapping[Any, Any], metric: str, interval: tuple[float, float] | None = None, is_marked: bool = False
) -> Entry:
    """A cell's mean, std and counts as the entry of a table, with the interval of the mean if it is a number."""
    seeds, n = cell["seeds"], cell["n"]
    counts = [f"{cell[name]} {name}" for name in COUNTS if cell[name]]
    if cell.get("undecided") and cell["candidates"] > 1 and math.isnan(cell["mean"]):
        return Entry(f"undecided: {cell['leading'] or 'no seed has finished'}", is_marked=is_marked)
    if not n:
        words = f"diverged {seeds}/{seeds}" if cell["diverged"] == seeds else f"0/{seeds}, {', '.join(counts)}"
        return Entry(words, is_marked=is_marked)
    note = ""
    if n < seeds or counts:
        note = f"({', '.join([f'{n}/{seeds}', *counts])})"
    elif n == 1:
        note = "(n = 1)"
    std = "" if math.isnan(cell["std"]) else number(cell["std"], metric)
    ends = "" if interval is None or math.isnan(interval[0]) else ", ".join(number(end, metric) for end in interval)
    return Entry(number(cell["mean"], metric), std, f"[{ends}]" if ends else "", note, True, is_marked)


def caption(selection: Selection) -> str:
    """What the numbers are: metric, epoch, n, protocol."""
    seeds = sorted(set(selection.cells["seeds"]))
    unit = " (%)" if is_accuracy(selection.metric) else ""
    text = (
        f"{selection.metric}{unit} at the {selection.epoch} epoch, mean +- sample std over "
        f"n = {' or '.join(map(str, seeds))} seeds"
    )
    text += f", selected on {selection.selected_on}" if selection.selected_on != "nothing" else ""
    rule = selection.pulled.protocol
    text += f"; {rule.roles}" if rule.roles else ""
    if rule.looks > 1:
        text += f"; seeds are added at up to {rule.looks} looks, and p values and intervals count for all of them"
    return text


@dataclass(frozen=True)
class RowVerdict:
    """The best cell of a table's row against the runner-up, and which cells cannot be told from the best."""

    row: tuple[str, ...]
    best: str
    runner_up: str
    difference: Difference  # of the two, in the direction in which more is better
    p: float  # after Holm over all pairs of cells that share a row of the table
    marked: tuple[tuple[str, ...], ...] = ()  # `Selection.key` of the best and of all that cannot be told from it
    undecided: str = ""  # the undecided cells, because of which the row has no verdict

    @property
    def is_shown(self) -> bool:
        """Whether the difference is more than chance, at the level 0.05 for the whole table."""
        return self.p < LEVEL

    def text(self, names: str | Sequence[str], metric: str) -> str:
        """`rho 0.1: polyak over constant by 0.28 [-0.40, 0.96], p = 0.21 (n = 3): not shown`."""
        where = " ".join(f"{name} {value}" for name, value in zip(names_of(names), self.row, strict=True))
        if self.undecided:
            return f"{where}: no verdict: {self.undecided} undecided".removeprefix(": ")
        difference = self.difference
        if math.isnan(difference.estimate):
            return self._of_counts(where)
        gap = number(difference.estimate, metric)
        if difference.low == -math.inf:
            rest = f"{gap} (it has fewer diverged seeds; n = {difference.n}): not shown"
        elif math.isnan(self.p):
            rest = f"{gap} ({difference.reason}): not shown"
        else:
            interval = f"[{number(difference.low, metric)}, {number(difference.high, metric)}]"
            shown = "shown" if self.is_shown else "not shown"
            rest = f"{gap} {interval}, {p_text(self.p)} (n = {difference.n}): {shown}"
        return f"{where}: {self.best} over {self.runner_up} by {rest}".removeprefix(": ")

    def _of_counts(self, where: str) -> str:
        shown_text = "shown" if self.is_shown else "not shown"
        tested = f"{p_text(self.p)} by Fisher's exact test" if not math.isnan(self.p) else self.difference.reason
        return f"{where}: {self.best} over {self.runner_up}, which has no finished seed ({tested}): {shown_text}"


def row_verdicts(selection: Selection, cells: pd.DataFrame, layout: Layout | None = None) -> list[RowVerdict]:
    """Of each row with two cells or more, the best against the runner-up, over their seeds.

    Every pair of cells that share a row is tested (`Selection.difference`), and the p values are Holm's over all pairs
    of the table: at most one table in twenty tells any two cells apart that are equal. A row with an undecided cell has
    no verdict and no mark.

    Raises `UserError` if the cells are of several tables (`subtables`): two would stand at one place.
    """
    layout = layout or Layout.of(selection)
    if selection.is_maximal is None:
        return []
    require_one_table(cells, layout.rows, layout)
    by_row: dict[tuple[str, ...], list[Mapping[Any, Any]]] = {}
    for cell in cells.to_dict("records"):
        by_row.setdefault(key_of(cell, layout.rows), []).append(cell)
    sign = 1 if selection.is_maximal else -1
    ranked = {
        row: sorted(members, key=lambda cell: (not _is_known(cell), cell["diverged"], -sign * cell["mean"]))
        for row, members in by_row.items()
        if len(members) > 1
    }
    undecided = {
        row: ", ".join(_name(cell, layout.cols) for cell in members if cell["undecided"])
        for row, members in ranked.items()
    }
    pairs = [
        (row, a, b, selection.difference([members[a]], [members[b]]))
        for row, members in ranked.items()
        if not undecided[row]
        for a, b in itertools.combinations(range(len(members)), 2)
    ]
    adjusted = holm([difference.p for *_, difference in pairs])
    against = {(row, b): (difference, p) for (row, a, b, difference), p in zip(pairs, adjusted, strict=True) if a == 0}
    verdicts = []
    for row, members in ranked.items():
        names = [_name(cell, layout.cols) for cell in members]
        if undecided[row]:
            verdicts.append(RowVerdict(row, "", "", untested("undecided"), math.nan, undecided=undecided[row]))
        elif _is_known(members[1]):
            told = {b for b in range(1, len(members)) if against[row, b][1] < LEVEL}
            marked = tuple(selection.key(cell) for b, cell in enumerate(members) if _is_known(cell) and b not in told)
            verdicts.append(RowVerdict(row, names[0], names[1], *against[row, 1], marked))
        elif _is_known(members[0]):
            verdicts.append(RowVerdict(row, names[0], names[1], *against[row, 1], (selection.key(members[0]),)))
    return verdicts


def _is_known(cell: Mapping[Any, Any]) -> bool:
    """Whether a cell can be the best of its row: it has a mean that is a number."""
    return bool(cell["n"]) and math.isfinite(cell["mean"])


def _name(cell: Mapping[Any, Any], cols: Sequence[str]) -> str:
    return " ".join(key_of(cell, cols))


def long_table(selection: Selection) -> pd.DataFrame:
    """One row per cell: the columns of the published tables, then n, counts, the choice and its budget, intervals.

    The mean and std of a test accuracy are named as in the published tables, those of any other metric `mean` and
    `std`. `missing` counts every seed without a result: failed, stopped or missing.
    """
    scale = 100 if is_accuracy(selection.metric) else 1
    is_test = selection.metric in ("test/top1", "test/top5")
    mean, std = ("test_accuracy_mean", "test_accuracy_std") if is_test else ("mean", "std")
    fixed = selection.of_all_runs
    rows = []
    for cell in selection.cells.to_dict("records"):
        interval = selection.interval(cell)
        row = {
            "optimizer": cell.get("optimizer", fixed["optimizer"]),
            "model": cell.get("model", fixed["model"]),
            "dataset": cell.get("task", fixed["task"]),
            "weight_decay": cell.get("weight_decay", fixed["weight_decay"]),
            "rho": cell["rho"],
            "scheduler": cell["scheduler"],
            mean: cell["mean"] * scale,
            std: cell["std"] * scale,
            "table": selection.pulled.protocol.name,
            "n": cell["n"],
            "diverged": cell["diverged"],
            "missing": cell["failed"] + cell["stopped"] + cell["missing"],
            "selected": cell["selected"],
            "metric": selection.metric,
            "epoch": selection.epoch,
            "selected_on": selection.selected_on,
            "candidates": cell["candidates"],
            "budget": cell["budget"],
            "runner_up": cell["runner_up"],
            "margin": cell["margin"] * (100 if is_accuracy(selection.by) else 1),
            "ties": cell["ties"],
            "edge": cell["edge"],
            "ci_low": interval[0] * scale,
            "ci_high": interval[1] * scale,
            "stalled": cell["stalled"],
            "cap_share": cell["cap_share"],
            "undecided": cell["undecided"],
            "leading": cell["leading"],
        }
        extra = {name: cell[name] for name in selection.varying if name not in (*row, "task")}
        rows.append({**row, **extra})
    return pd.DataFrame(rows)
