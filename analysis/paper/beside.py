"""The paper's CIFAR tables: our numbers beside the published ones, in the paper's layout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from polysweep.analysis.data.frames import RunSet, to_python
from polysweep.analysis.figures.files import NamedFigure
from polysweep.analysis.figures.panels import titled
from polysweep.analysis.figures.plots import plot_robustness
from polysweep.analysis.figures.styles import looks_of, one_at_a_time
from polysweep.analysis.paper.parts import STAND_IN, STANDS_FOR
from polysweep.analysis.published.claims import VERDICTS
from polysweep.analysis.published.comparison import Compared
from polysweep.analysis.tables.candidates import OUTCOMES
from polysweep.analysis.tables.writers import Entry, Table

SCHEDULERS: Final[Mapping[str, str]] = {"constant": "Constant", "cosine": "Cosine annealing", "polyak": "Polyak (SPS)"}
NAMES: Final[Mapping[str, str]] = {
    "usam": "USAM", "sam": "SAM", "resnet20": "ResNet-20", "resnet32": "ResNet-32", "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}  # fmt: skip


def as_published(pulled: RunSet) -> RunSet:
    """The runs of the rehearsal under the names of what they stand for, so that they meet the published cells."""
    runs, rule = pulled.runs.copy(), pulled.protocol
    for name, column in STAND_IN.items():
        names = [STANDS_FOR[name].get(value, str(value)) for value in to_python(runs[column])]
        runs[name] = pd.Series(names, index=runs.index, dtype=runs["trial_id"].dtype)
    of = {column: name for name, column in STAND_IN.items()}
    cell = tuple(dict.fromkeys(of.get(name, name) for name in rule.cell))
    return RunSet(replace(rule, cell=cell), runs, pulled.load)


def published_tables(compared: Compared) -> Iterator[Table]:
    """Each table of the paper: by radius our mean and std with n, the published ones, and the difference.

    A table of CIFAR-100 has our top-1 and our top-5: the paper does not say which it prints.
    """
    for label, cells in compared.cells.groupby("table", sort=False):
        first = cells.to_dict("records")[0]
        readings = [name for name in compared.readings if (cells[f"{name} text"] != "-").any()]
        rows: list[list[str | Entry]] = []
        for rho, of_radius in cells.groupby("rho"):
            by_scheduler = {cell["scheduler"]: cell for cell in of_radius.to_dict("records")}
            order = [by_scheduler.get(name) for name in SCHEDULERS]
            rows.append([f"{rho:g}", "published", *(_published(cell) for cell in order)])
            for name in readings:
                ours = name if name.startswith("our") else f"ours, {name}"
                rows.append(["", ours, *("-" if cell is None else _ours(cell, name) for cell in order)])
                rows.append(["", "difference", *("-" if cell is None else _difference(cell, name) for cell in order)])
        values = {"table": label}
        title = ", ".join(
            [
                NAMES[first["dataset"]],
                NAMES[first["model"]],
                NAMES[first["optimizer"]],
                f"weight decay {first['weight_decay']:g}",
            ]
        )
        yield Table(
            ["rho", "", *SCHEDULERS.values()], rows, 2, title, values, "test accuracy (%)", _verdicts(compared, first)
        )


def _published(cell: Mapping[Any, Any] | None) -> str:
    return "-" if cell is None else f"{cell['test_accuracy_mean']:.2f} +- {cell['test_accuracy_std']:.2f}"


def _ours(cell: Mapping[Any, Any], reading: str) -> str:
    text = str(cell[f"{reading} text"])
    count = cell[f"{reading} n"]
    return text if not count or "/" in text else f"{text} (n = {count})"


def _difference(cell: Mapping[Any, Any], reading: str) -> str:
    gap, low, high = (cell[f"{reading} {end}"] for end in ("difference", "low", "high"))
    if math.isnan(gap):
        return "-"
    return f"{gap:+.2f}" + ("" if math.isnan(low) else f" [{low:+.2f}, {high:+.2f}]")


def _verdicts(compared: Compared, first: Mapping[Any, Any]) -> list[str]:
    """What our runs say of the paper's claims about one table."""
    place = f"{first['optimizer']} {first['model']} {first['dataset']} wd {first['weight_decay']:g}"
    own = [one for one in compared.claims if one.where == place or one.where.startswith(f"{place} rho ")]
    lines = []
    for claim, reading in dict.fromkeys((one.claim, one.reading) for one in own):
        verdicts = [one for one in own if (one.claim, one.reading) == (claim, reading)]
        parts = []
        for verdict in VERDICTS:
            places = [one.where.removeprefix(place).strip() for one in verdicts if one.verdict == verdict]
            if places:
                parts.append(f"{verdict} at {', '.join(places)}" if any(places) else verdict)
        lines.append(f"{claim} ({reading}): {'; '.join(parts)}.")
    return lines


def overview(compared: Compared) -> Iterator[NamedFigure]:
    """One figure: a panel per table of the paper, ours in colour, the published means in grey."""
    return one_at_a_time(_overview(compared))


def _overview(compared: Compared) -> Iterator[NamedFigure]:
    tables = list(compared.cells.groupby("table", sort=False))
    columns = 4
    figure = Figure(figsize=(10.0, 2.2 * math.ceil(len(tables) / columns)))
    axes = figure.subplots(math.ceil(len(tables) / columns), columns, squeeze=False).ravel()
    reading = compared.readings[0]
    looks = looks_of(SCHEDULERS)
    for (_, cells), ax in zip(tables, axes, strict=False):
        ours = cells[["rho", "scheduler"]].assign(
            mean=cells[f"{reading} mean"] / 100, std=cells[f"{reading} std"] / 100, n=cells[f"{reading} n"],
            undecided="", **dict.fromkeys((*OUTCOMES, "stalled"), 0),  # the tables say which seeds are lost
        )  # fmt: skip
        theirs = cells[["rho", "scheduler"]].assign(mean=cells["test_accuracy_mean"], std=cells["test_accuracy_std"])
        plot_robustness(ours, "test/top1", ax, theirs, looks=looks)
        first = cells.to_dict("records")[0]
        names = [NAMES[first[field]] for field in ("dataset", "model", "optimizer")]
        ax.set_title(f"{' '.join(names)}, wd {first['weight_decay']:g}", fontsize=7)
        ax.set(xlabel="radius" if ax in axes[len(tables) - columns : len(tables)] else "", ylabel="")
    for ax in axes[len(tables) :]:
        ax.set_visible(False)
    figure.supylabel("test accuracy (%)", fontsize=9)
    caption = f"All {len(tables)} CIFAR tables: our {reading} accuracy (colour, band ± one std), the published in grey."
    yield titled(
        "cifar-tables", figure, compared.cells, "Test accuracy against the radius, ours and published", caption
    )


def claim_summary(compared: Compared) -> Table:
    """By claim how often each verdict falls in our runs, and how often the published means say it."""
    rows: Sequence[Mapping[str, Any]] = compared.summary()
    header = ["claim", "dataset", "reading", "in print", "our runs"]
    notes = ["Each claim's rows in all its readings are one family for Holm's correction, at 5 %."]
    return Table(
        header,
        [[str(value) for value in row.values()] for row in rows],
        1,
        "Claims of the paper",
        {},
        "verdicts",
        notes,
    )
