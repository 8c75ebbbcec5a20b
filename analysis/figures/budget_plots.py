"""The plot of budget curves: how good the best of k candidates is, one line per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from polysweep.analysis.data.frames import names_of
from polysweep.analysis.figures import captions
from polysweep.analysis.figures.axes import say_empty
from polysweep.analysis.figures.files import NamedFigure, figure_name
from polysweep.analysis.figures.lines import Looks, legend, lines_of, require_one_each, scale_of
from polysweep.analysis.figures.panels import grid, titled
from polysweep.analysis.figures.styles import axes_of, in_order
from polysweep.analysis.tables.selection import TABLE_KEYS, Selection
from polysweep.analysis.tables.wording import axis_label, drawable, equals, symbol, value_text
from polysweep.trainer.history import is_accuracy


def plot_budget(
    curves: pd.DataFrame,
    metric: str,
    ax: Axes | None = None,
    *,
    lines: str | Sequence[str] = "scheduler",
    looks: Looks | None = None,
) -> Axes:
    """The expected best of k candidates against k, one line per method; the band holds nine draws of k in ten.

    `curves` are rows of `budget_curves`. A line begins where no draw of k candidates is without a result.

    Raises `UserError` if two rows of a line share k: they are of several methods.
    """
    require_one_each(curves, [*names_of(lines), "k"], "plot_budget")
    ax, scale = axes_of(ax), scale_of(metric)
    ax.set(xlabel="candidates tried", ylabel=axis_label(metric))
    drawn = curves[curves["expected"].notna()]
    if not len(drawn):
        return say_empty(ax, "no method with all results", is_percent=is_accuracy(metric))
    for line in lines_of(drawn, names_of(lines), looks):
        k = line.rows["k"].to_numpy()
        ax.plot(k, line.rows["expected"] * scale, label=line.label, **line.look)
        ax.fill_between(
            k, line.rows["low"] * scale, line.rows["high"] * scale, color=line.look["color"], alpha=0.15, linewidth=0
        )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlim(1 - 0.04 * drawn["k"].max(), 1.04 * drawn["k"].max())
    return legend(ax)


def budget_figure(
    selection: Selection,
    curves: pd.DataFrame,
    width: float,
    *,
    lines: Sequence[str],
    looks: Looks | None = None,
    values: Mapping[str, Any] | None = None,
) -> NamedFigure:
    """One panel per radius that the curves have."""
    has_panels = "rho" in curves and "rho" not in selection.pulled.protocol.tuned
    radii: Sequence[Any] = in_order(curves["rho"]) if has_panels else []
    per_row = {3.35: 2, 6.75: 4}.get(width, 5)
    figure, axes = grid(width, len(radii), per_row, height=1.9) if len(radii) > 1 else _one(width)
    for rho, ax in zip(radii if len(radii) > 1 else [None], axes, strict=True):
        rows = curves if rho is None else curves[curves["rho"].isna() | (curves["rho"] == rho)]
        plot_budget(rows, selection.metric, ax, lines=lines, looks=looks)
        if rho is not None:
            ax.set_title(f"{symbol('rho')} = {drawable(value_text(rho), 20)}")
    most = int(curves["k"].max())
    means = equals("n", captions.n_of(curves))
    left_out = int(curves[curves["k"] == 1]["left_out"].sum())
    gaps = f"; {left_out} candidates without all results are left out" if left_out else ""
    about = f"best of k candidates, up to {most}, {selection.epoch} epoch, {means}"
    caption = captions.sentence(
        f"{captions.metric_words(selection)} of the best of k candidates drawn from those tried, "
        f"{captions.one_line_per(lines)}",
        values or {},
        f"expected over all draws of k candidates, whose means are over {means} seeds; the band is from the 5 % to the "
        f"95 % quantile of the draws{captions.chosen_on(selection)}{gaps}",
    )
    title = captions.title(selection, values or {}, about)
    return titled(figure_name("budget", values or {}), figure, curves, title, caption)


def are_curves(curves: pd.DataFrame) -> bool:
    """Whether there is something to draw: a method with several candidates."""
    return bool((curves["expected"].notna() & (curves["candidates"] > 1)).any())


def table_curves(selection: Selection, curves: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Those of the cells of one table, with the radius, the scheduler and all else that the table's cells have."""
    by_key = {selection.cell_key(cell): cell for cell in cells.to_dict("records")}
    of_table = [(row, by_key.get(selection.cell_key(row))) for row in curves.to_dict("records")]
    fields = [name for name in (*TABLE_KEYS, *selection.varying) if name not in curves]
    rows = [{**{name: cell[name] for name in fields}, **row} for row, cell in of_table if cell is not None]
    return pd.DataFrame(rows, columns=[*fields, *curves.columns])


def _one(width: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width if width < 4 else 0.8 * width, 3.0))
    return figure, [figure.subplots()]
