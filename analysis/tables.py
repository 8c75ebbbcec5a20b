"""Mean +- std tables: any fields down, any across. Every number with its n wherever a cell is not complete."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from analysis.frames import plain
from analysis.select import TABLE_KEYS, Selection, shown
from analysis.stats import Comparison, compare_means
from trainer.history import is_accuracy, shown_number
from trainer.registry import UserError, expected

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
COUNTS: Final = ("diverged", "failed", "stopped", "missing")
Show = Callable[[Mapping[Any, Any], bool], str]


@dataclass(frozen=True)
class Layout:
    """Which fields of the cells are rows, columns, and one table each. `by` holds all others that vary."""

    rows: tuple[str, ...]
    cols: tuple[str, ...]
    by: tuple[str, ...]

    @classmethod
    def of(
        cls,
        selection: Selection,
        rows: Sequence[str] | None = None,
        cols: Sequence[str] | None = None,
        by: Sequence[str] | None = None,
    ) -> Layout:
        """The paper's by default: radii down, schedulers across, one table per choice of everything else that varies.

        Fields that vary and are not named make more tables: nothing is averaged over. Raises `UserError` for a field
        that the cells do not have, and for one that is named twice.
        """
        varying = [*TABLE_KEYS, *selection.varying]
        known = [name for name in varying if name in selection.cells and selection.cells[name].notna().any()]
        asked = {"--rows": rows, "--cols": cols, "--by": by}
        seen: dict[str, str] = {}
        for option, names in asked.items():
            for name in names or ():
                if name not in varying:
                    raise UserError(f"{option}: {name!r} does not vary; {expected(name, known)}")
                if name in seen:
                    raise UserError(f"{option}: {name!r} is in {seen[name]} already")
                seen[name] = option
        default_rows, default_cols = (tuple([key] if key not in seen else []) for key in TABLE_KEYS)
        down = tuple(rows) if rows else default_rows
        across = tuple(cols) if cols else default_cols
        rest = [name for name in varying if name not in (*down, *across, *(by or ()))]
        rest = [name for name in rest if name in known]
        return cls(down, across, (*(by or ()), *rest))


def subtables(selection: Selection, layout: Layout | None = None) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """One frame of cells per choice of the fields `by`.

    A cell to which such a field does not apply (gamma_b, to a constant step size) stands in each of its tables.
    """
    layout = layout or Layout.of(selection)
    groups: dict[tuple[Any, ...], list[int]] = {}
    places: dict[tuple[Any, ...], set[Any]] = {}
    for at, cell in enumerate(selection.cells.to_dict("records")):
        key = tuple(None if shown(cell[name]) == "-" else cell[name] for name in layout.by)
        groups.setdefault(key, []).append(at)
        places.setdefault(key, set()).add((_key(cell, layout.rows), _key(cell, layout.cols)))
    hosts = {key: [other for other in groups if _goes_with(key, other)] for key in groups}
    # One that would stand where the table has a cell of its own is another variant: it has a table to itself.
    guests = {key for key, found in hosts.items() if found and not any(places[key] & places[other] for other in found)}
    for key, members in groups.items():
        if key in guests:
            continue
        joined = sorted([*members, *(at for guest in guests if key in hosts[guest] for at in groups[guest])])
        named = {n: v for n, v in zip(layout.by, key, strict=True) if v is not None}
        absent = {n: "-" for n, v in zip(layout.by, key, strict=True) if v is None and hosts[key]}
        yield {**named, **absent}, selection.cells.iloc[joined]


def _goes_with(key: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether `other` says the same where `key` says something, and more."""
    return key != other and all(mine is None or mine == theirs for mine, theirs in zip(key, other, strict=True))


def mean_std_table(
    selection: Selection,
    cells: pd.DataFrame | None = None,
    *,
    rows: Sequence[str] | None = None,
    cols: Sequence[str] | None = None,
    by: Sequence[str] | None = None,
    show: Show | None = None,
) -> pd.DataFrame:
    """The table as a frame of text: an index level per field of `by` and `rows`, a column level per field of `cols`.

    `cells` are those of one table (`subtables`), by default all. Each entry is `show(cell, best)`, by default
    `98.31 +- 0.42 (2/3, 1 diverged)`; `best` marks the best mean of its row. `selection.cells` has the numbers.
    """
    layout = Layout.of(selection, rows, cols, by)
    down = layout.rows if cells is not None else (*layout.by, *layout.rows)
    write: Show = show or (lambda cell, _: cell_text(cell, selection.metric))
    shown = selection.cells if cells is None else cells
    records = shown.to_dict("records")
    best = _best_of_rows(records, down, selection)
    found: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
    for cell in records:
        row, column = _key(cell, down), _key(cell, layout.cols)
        entries = found.setdefault(row, {})
        assert column not in entries, "a table has one cell per row and column"
        entries[column] = write(cell, cell["n"] > 0 and cell["mean"] == best.get(row))
    columns = list(dict.fromkeys(_key(cell, layout.cols) for cell in records))
    data = [[entries.get(column, "-") for column in columns] for entries in found.values()]
    return pd.DataFrame(data, index=_index(list(found), down), columns=_index(columns, layout.cols))


def _best_of_rows(records: Sequence[Mapping[Any, Any]], down: Sequence[str], selection: Selection) -> dict[Any, float]:
    found: dict[Any, float] = {}
    if selection.is_maximal is None:
        return found
    pick = max if selection.is_maximal else min
    for cell in records:
        if cell["n"]:
            key = _key(cell, down)
            found[key] = pick(found.get(key, cell["mean"]), cell["mean"])
    return found


def _index(keys: Sequence[tuple[str, ...]], names: Sequence[str]) -> pd.Index:
    if len(names) == 1:
        return pd.Index([key[0] for key in keys], name=names[0])
    return pd.MultiIndex.from_tuples(list(keys), names=list(names)) if names else pd.Index([""] * len(keys))


def _key(cell: Mapping[Any, Any], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(shown(cell[name]) for name in names)


def cell_text(cell: Mapping[Any, Any], metric: str) -> str:
    """`98.31 +- 0.42 (2/3, 1 diverged)`; without the parenthesis where every seed has finished."""
    seeds, n = cell["seeds"], cell["n"]
    notes = [f"{cell[name]} {name}" for name in COUNTS if cell[name]]
    if not n:
        return f"diverged {seeds}/{seeds}" if cell["diverged"] == seeds else f"0/{seeds}, {', '.join(notes)}"
    text = number(cell["mean"], metric)
    if not math.isnan(cell["std"]):
        text += f" +- {number(cell['std'], metric)}"
    if n < seeds:
        return f"{text} ({n}/{seeds}{''.join(f', {note}' for note in notes)})"
    return text if n > 1 else f"{text} (n = 1)"


def with_interval(selection: Selection, cell: Mapping[Any, Any]) -> str:
    """`cell_text` with the bootstrap interval of the mean: `98.31 +- 0.42 [97.90, 98.70]`."""
    text = cell_text(cell, selection.metric)
    low, high = selection.intervals.get(selection.key(cell), (math.nan, math.nan))
    if math.isnan(low):
        return text
    value, space, note = text.partition(" (")
    return f"{value} [{number(low, selection.metric)}, {number(high, selection.metric)}]{space}{note}"


def number(value: float, metric: str) -> str:
    """Percent with two decimals for an accuracy, else four decimals; three digits of what these would hide."""
    if is_accuracy(metric):
        return f"{100 * value:.2f}"
    return shown_number(value)


def caption(selection: Selection) -> str:
    """What the numbers are: metric, epoch, n, protocol."""
    seeds = sorted(set(selection.cells["seeds"]))
    unit = " (%)" if is_accuracy(selection.metric) else ""
    text = (
        f"{selection.metric}{unit} at the {selection.epoch} epoch, mean +- sample std over "
        f"n = {' or '.join(map(str, seeds))} seeds"
    )
    return text + (f", selected on {selection.selected_on}" if selection.selected_on != "nothing" else "")


@dataclass(frozen=True)
class RowVerdict:
    """The best cell of a table's row against the runner-up."""

    row: tuple[str, ...]
    best: str
    runner_up: str
    comparison: Comparison

    def text(self, names: Sequence[str], metric: str) -> str:
        """`rho 0.1: polyak over constant by 0.28, paired t p = 0.21 (n = 3): not shown`."""
        found = self.comparison
        tested = f", {found.test} {found.p_text} (n = {found.n})" if found.p_text else f" ({found.test})"
        verdict = "" if math.isnan(found.p) else ": shown" if found.is_shown else ": not shown"
        where = " ".join(f"{name} {value}" for name, value in zip(names, self.row, strict=True))
        gap = number(abs(found.difference), metric)
        return f"{where}: {self.best} over {self.runner_up} by {gap}{tested}{verdict}".removeprefix(": ")


def row_verdicts(selection: Selection, cells: pd.DataFrame, layout: Layout | None = None) -> list[RowVerdict]:
    """Of each row with two cells or more that have a mean, the best against the runner-up, over their seeds."""
    layout = layout or Layout.of(selection)
    by_row: dict[tuple[str, ...], list[Mapping[Any, Any]]] = {}
    for cell in cells.to_dict("records"):
        if cell["n"]:
            by_row.setdefault(_key(cell, layout.rows), []).append(cell)
    values = selection.by_seed
    if selection.is_maximal is None:
        return []
    sign = 1 if selection.is_maximal else -1
    found = []
    for row, members in by_row.items():
        first, *others = sorted(members, key=lambda cell: -sign * cell["mean"])
        if others:
            best, second = (values[selection.key(cell)] for cell in (first, others[0]))
            names = [" ".join(_key(cell, layout.cols)) for cell in (first, others[0])]
            found.append(RowVerdict(row, names[0], names[1], compare_means(best, second)))
    return found


def long_table(selection: Selection) -> pd.DataFrame:
    """One row per cell: the columns of the published tables, then n, counts, the choice and its budget, intervals."""
    scale = 100 if is_accuracy(selection.metric) else 1
    runs = selection.pulled.runs
    fixed = {
        name: plain(runs[name])[0] if name in runs else None for name in ("optimizer", "model", "task", "weight_decay")
    }
    rows = []
    for cell in selection.cells.to_dict("records"):
        interval = selection.intervals.get(selection.key(cell), (math.nan, math.nan))
        row = {
            "optimizer": cell.get("optimizer", fixed["optimizer"]),
            "model": cell.get("model", fixed["model"]),
            "dataset": cell.get("task", fixed["task"]),
            "weight_decay": cell.get("weight_decay", fixed["weight_decay"]),
            "rho": cell["rho"],
            "scheduler": cell["scheduler"],
            "test_accuracy_mean": cell["mean"] * scale,
            "test_accuracy_std": cell["std"] * scale,
            "table": selection.pulled.protocol.name,
            "n": cell["n"],
            "diverged": cell["diverged"],
            "missing": cell["seeds"] - cell["n"] - cell["diverged"],
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
        }
        extra = {name: cell[name] for name in selection.varying if name not in (*row, "task")}
        rows.append({**row, **extra})
    return pd.DataFrame(rows)
