"""The figure over all optimizers: SAM beside USAM beside SGD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from polysweep.analysis.figures import captions
from polysweep.analysis.figures.files import NamedFigure, figure_name
from polysweep.analysis.figures.lines import by_value, line_names
from polysweep.analysis.figures.panels import grid, titled
from polysweep.analysis.figures.plots import plot_robustness
from polysweep.analysis.figures.styles import looks_of
from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.wording import drawable

COMPARED: Final = "optimizer"
"""The field whose values stand beside each other."""


def optimizer_figures(selection: Selection, by: Sequence[str], width: float) -> Iterator[NamedFigure]:
    """One panel per scheduler, one line per optimizer; `by` are the fields of one figure each."""
    looks = looks_of(line_names(selection.cells, [COMPARED]))
    for values, cells in subtables(selection, Layout.of(selection, None, (COMPARED, "scheduler"), by)):
        if cells[COMPARED].nunique() < 2:
            continue
        panels = dict(by_value(cells, "scheduler"))
        figure, axes = grid(width, len(panels), 2 if width < 4 else 3, height=2.3)
        for (scheduler, rows), ax in zip(panels.items(), axes, strict=True):
            plot_robustness(rows, selection.metric, ax, lines=COMPARED, looks=looks)
            ax.set_title(drawable(scheduler, 30))
        notes = ". An optimizer without a radius is a level" if cells["rho"].isna().any() else ""
        if {"sam", "usam"} <= set(cells[COMPARED]):
            notes += ". The radius of SAM is a length in weight space, that of USAM a multiple of the gradient"
        caption = captions.sentence(
            f"{captions.metric_words(selection)} against the {captions.RADIUS}, "
            "one panel per scheduler, one line per optimizer",
            values,
            f"{captions.means(selection, cells)}{notes}",
        )
        title = captions.title(selection, values, captions.facts(selection, cells))
        yield titled(figure_name("optimizers", values), figure, cells, title, caption)
