"""Mean +- std tables: radii down, schedulers across. Every number with its n wherever a cell is not complete."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pandas as pd

from analysis.select import Selection
from trainer.history import is_accuracy
from trainer.registry import UserError

FORMATS: Final = ("markdown", "latex", "csv")
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


def render(selection: Selection, format_: str) -> str:
    """The tables of a selection as text.

    Raises `UserError` for an unknown format.
    """
    if format_ == "csv":
        return long_table(selection).to_csv(index=False).rstrip("\n")
    if format_ not in FORMATS:
        raise UserError(f"--format: {format_!r}; expected one of {', '.join(FORMATS)}")
    writer = _markdown if format_ == "markdown" else _latex
    return "\n\n".join(writer(selection, values, cells) for values, cells in subtables(selection))


def subtables(selection: Selection) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """One frame of cells per choice of the varying fields besides rho and scheduler.

    A cell to which such a field does not apply (gamma_b, to a constant step size) stands in each of its tables.
    """
    cells = selection.cells
    choices = [[(name, value) for value in cells[name].dropna().unique()] for name in selection.varying]
    for choice in itertools.product(*choices):
        keep = pd.Series(True, index=cells.index)
        for name, value in choice:
            keep &= (cells[name] == value) | cells[name].isna()
        if keep.any():
            yield dict(choice), cells[keep]


def mean_std_table(selection: Selection, cells: pd.DataFrame, show: Callable[..., str]) -> pd.DataFrame:
    """Rows rho, columns schedulers, each entry `show(cell, best)`; `best` marks the best mean of its row."""
    best = cells.groupby(cells["rho"].map(_radius))["mean"].agg(_direction(selection))
    rows: dict[str, dict[str, str]] = {}
    for cell in cells.to_dict("records"):
        rho = _radius(cell["rho"])
        winner = cell["n"] > 0 and cell["mean"] == best.loc[rho]
        row = rows.setdefault(rho, {})
        assert cell["scheduler"] not in row, "a table has one cell per radius and scheduler"
        row[cell["scheduler"]] = show(cell, winner)
    schedulers = list(dict.fromkeys(cells["scheduler"]))
    table = pd.DataFrame.from_dict(rows, orient="index", columns=schedulers).fillna("-")
    table.index.name = "rho"
    return table


def cell_text(cell: Mapping[Any, Any], metric: str) -> str:
    """`98.31 +- 0.42 (2/3, 1 diverged)`; without the parenthesis where every seed has finished."""
    seeds, n = cell["seeds"], cell["n"]
    notes = [f"{cell[name]} {name}" for name in COUNTS if cell[name]]
    if not n:
        return f"diverged {seeds}/{seeds}" if cell["diverged"] == seeds else f"0/{seeds}, {', '.join(notes)}"
    number = _number(cell["mean"], metric)
    if not math.isnan(cell["std"]):
        number += f" +- {_number(cell['std'], metric)}"
    if n < seeds:
        return f"{number} ({n}/{seeds}, {', '.join(notes)})"
    return number if n > 1 else f"{number} (n = 1)"


def caption(selection: Selection) -> str:
    """What the numbers are: metric, epoch, n, protocol."""
    seeds = sorted(set(selection.cells["seeds"]))
    unit = " (%)" if is_accuracy(selection.metric) else ""
    text = (
        f"{selection.metric}{unit} at the {selection.epoch} epoch, mean +- sample std over "
        f"n = {' or '.join(map(str, seeds))} seeds"
    )
    return text + (f", selected on {selection.selected_on}" if selection.selected_on != "nothing" else "")


def long_table(selection: Selection) -> pd.DataFrame:
    """One row per cell: the columns of the published tables, then n, counts and what was selected."""
    config = selection.pulled.spec.trials[0].config
    scale = 100 if is_accuracy(selection.metric) else 1
    rows = []
    for cell in selection.cells.to_dict("records"):
        row = {
            "optimizer": cell.get("optimizer", config.optimizer),
            "model": cell.get("model", config.model),
            "dataset": cell.get("task", config.task),
            "weight_decay": cell.get("weight_decay", config.weight_decay),
            "rho": cell["rho"],
            "scheduler": cell["scheduler"],
            "test_accuracy_mean": cell["mean"] * scale,
            "test_accuracy_std": cell["std"] * scale,
            "table": selection.pulled.spec.name,
            "n": cell["n"],
            "diverged": cell["diverged"],
            "missing": cell["seeds"] - cell["n"] - cell["diverged"],
            "selected": cell["selected"],
            "metric": selection.metric,
            "epoch": selection.epoch,
            "selected_on": selection.selected_on,
        }
        extra = {k: cell[k] for k in selection.varying if k not in (*row, "task")}
        rows.append({**row, **extra})
    return pd.DataFrame(rows)


def _radius(rho: Any) -> str:
    """A table's row: the radius, or `-` for an optimizer that has none."""
    return "-" if pd.isna(rho) else str(rho)


def _direction(selection: Selection) -> str:
    """`max` or `min`: which mean is the best one of the reported metric."""
    return "max" if is_accuracy(selection.metric) else "min"


def _number(value: float, metric: str) -> str:
    return f"{100 * value:.2f}" if is_accuracy(metric) else f"{value:.4f}"


def _title(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _markdown(selection: Selection, values: Mapping[str, Any], cells: pd.DataFrame) -> str:
    def show(cell: Mapping[Any, Any], best: bool) -> str:
        text = cell_text(cell, selection.metric)
        if not best:
            return text
        number, space, note = text.partition(" (")
        return f"**{number}**{space}{note}"

    table = mean_std_table(selection, cells, show)
    entries = [
        ["rho", *table.columns],
        *([rho, *row] for rho, row in zip(table.index, table.values, strict=True)),
    ]
    widths = [max(len(row[i]) for row in entries) for i in range(len(entries[0]))]
    lines = ["| " + " | ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)) + " |" for row in entries]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    title = f" ({_title(values)})" if values else ""
    return "\n".join([f"{selection.pulled.spec.name}{title}: {caption(selection)}", "", *lines, *_choices(cells)])


def _choices(cells: pd.DataFrame) -> list[str]:
    """`selected: constant lr=0.1; cosine lr=0.1 lr_min=0.01 (rho 0.1, 0.2), ...`: what was tuned, per scheduler."""
    parts = []
    for scheduler, group in cells[cells["selected"] != ""].groupby("scheduler", sort=False):
        radii: dict[str, list[str]] = {}
        for cell in group.to_dict("records"):
            radii.setdefault(cell["selected"], []).append(_radius(cell["rho"]))
        where = {choice: f" (rho {', '.join(rhos)})" if len(radii) > 1 else "" for choice, rhos in radii.items()}
        parts.append(f"{scheduler} " + ", ".join(f"{choice}{where[choice]}" for choice in radii))
    return ["", f"selected: {'; '.join(parts)}"] if parts else []


def _latex(selection: Selection, values: Mapping[str, Any], cells: pd.DataFrame) -> str:
    def show(cell: Mapping[Any, Any], best: bool) -> str:
        text = cell_text(cell, selection.metric)
        number, _, note = text.partition(" (")
        mean, plus, std = number.partition(" +- ")
        if not cell["n"]:
            return text
        math_ = f"{mean}_{{\\pm {std}}}" if plus else mean
        math_ = f"\\mathbf{{{math_}}}" if best else math_
        return f"${math_}$" + (f" ({note}" if note else "")

    table = mean_std_table(selection, cells, show)
    title = f" ({_title(values)})" if values else ""
    text = f"{selection.pulled.spec.name}{title}: {caption(selection)}".replace("+-", r"$\pm$")
    lines = [
        r"\begin{table}",
        rf"  \caption{{{_escape(text)}}}",
        r"  \centering",
        rf"  \begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"    \toprule",
        "    " + " & ".join([r"$\rho$", *map(_escape, table.columns)]) + r" \\",
        r"    \midrule",
        *("    " + " & ".join([rho, *row]) + r" \\" for rho, row in zip(table.index, table.values, strict=True)),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _escape(text: str) -> str:
    for character in "&%#_":
        text = text.replace(character, "\\" + character)
    return text
