"""The figures over label noise: how the metric falls as more of the training labels are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from polysweep.analysis.figures import captions
from polysweep.analysis.figures.files import NamedFigure, figure_name
from polysweep.analysis.figures.lines import Looks
from polysweep.analysis.figures.panels import grid, titled
from polysweep.analysis.figures.plots import plot_against
from polysweep.analysis.figures.styles import in_order
from polysweep.analysis.tables.layout import LABEL_NOISE, Layout, subtables
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.wording import drawable, symbol, value_text


def noise_figures(selection: Selection, layout: Layout, width: float, looks: Looks) -> Iterator[NamedFigure]:
    """One panel per radius, one line per value of the layout's `cols`; all else that varies makes more figures.

    None if label noise does not vary, or names the lines.
    """
    if LABEL_NOISE not in layout.by:
        return
    by = tuple(name for name in layout.by if name != LABEL_NOISE)
    for values, cells in subtables(selection, Layout((*layout.rows, LABEL_NOISE), layout.cols, by)):
        if cells[LABEL_NOISE].nunique() < 2:
            continue
        has_panels = "rho" in selection.pulled.protocol.cell
        radii: Sequence[Any] = (in_order(cells["rho"]) if has_panels else []) or [None]
        is_one = len(radii) == 1
        inches = 0.8 * width if is_one and width > 4 else width
        figure, axes = grid(inches, len(radii), {3.35: 2, 6.75: 4}.get(width, 5), height=3.0 if is_one else 1.9)
        for rho, ax in zip(radii, axes, strict=True):
            rows = cells if rho is None else cells[cells["rho"].isna() | (cells["rho"] == rho)]
            plot_against(rows, LABEL_NOISE, selection.metric, ax, lines=layout.cols, looks=looks)
            if rho is not None:
                ax.set_title(f"{symbol('rho')} = {drawable(value_text(rho), 20)}")
        panels = "" if is_one else ", one panel per radius"
        caption = captions.sentence(
            f"{captions.metric_words(selection)} against the share of wrong training labels{panels}, "
            f"{captions.one_line_per(layout.cols)}",
            values,
            captions.means(selection, cells),
        )
        title = captions.title(selection, values, captions.facts(selection, cells))
        yield titled(figure_name("label-noise", values), figure, cells, title, caption)
