"""The figures over corrupted test sets: how the accuracy falls as the images get worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.axes import Axes

from polysweep.analysis.figures import captions
from polysweep.analysis.figures.files import NamedFigure, figure_name
from polysweep.analysis.figures.lines import Looks
from polysweep.analysis.figures.panels import grid, titled
from polysweep.analysis.figures.plots import plot_against
from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.severity import CLEAN, as_measured, corruptions_of, severity_cells


def plot_severity(
    cells: pd.DataFrame,
    ax: Axes | None = None,
    *,
    lines: str | Sequence[str] = "scheduler",
    looks: Looks | None = None,
) -> Axes:
    """Accuracy against the severity of one corruption; lines, bands and crosses as in `plot_robustness`.

    `cells` are rows of `severity_cells` of one corruption. Raises `UserError` if two cells of a line share a severity:
    they are of several corruptions, or of several tables.
    """
    ax = plot_against(cells, "severity", CLEAN, ax, lines=lines, looks=looks)
    ax.set(xlabel="severity (0: clean)")
    return ax


def severity_figures(selection: Selection, layout: Layout, width: float, looks: Looks) -> Iterator[NamedFigure]:
    """One panel per corruption, one line per value of the layout's `cols`; every radius has a figure of its own.

    None if nothing was measured on corrupted images.
    """
    names = corruptions_of(selection)
    if not names:
        return
    measured_at = as_measured(selection)
    has_radii = "rho" in selection.pulled.protocol.cell
    apart = Layout((), layout.cols, (*layout.by, "rho")) if has_radii else layout
    measured = severity_cells(selection)
    keys = [selection.cell_key(row) for row in measured.to_dict("records")]
    for values, cells in subtables(selection, apart):
        shown = {selection.cell_key(cell) for cell in cells.to_dict("records")}
        rows = measured[[key in shown for key in keys]]
        figure, axes = grid(width, len(names), {3.35: 2, 6.75: 4}.get(width, 4), height=1.9)
        for name, ax in zip(names, axes, strict=True):
            plot_severity(rows[rows["corruption"] == name], ax, lines=layout.cols, looks=looks)
            ax.set_title(name)
        caption = captions.sentence(
            f"{captions.metric_words(measured_at)} on corrupted images, one panel per corruption, "
            f"{captions.one_line_per(layout.cols)}",
            values,
            captions.means(measured_at, rows),
        )
        title = captions.title(measured_at, values, f"corrupted test images, {captions.facts(measured_at, rows)}")
        yield titled(figure_name("severity", values), figure, rows, title, caption)
