"""Panels of one figure, and its title and legend: all text has its room, and nothing hides data."""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polysweep.analysis.figures.files import NamedFigure
from polysweep.analysis.tables.wording import in_unicode, wrapped

LETTERS: Final = 11
"""Letters of 10 points in an inch."""
LINE: Final = 0.165
"""Inches of a line of text."""
GAP: Final = 0.065
"""Inches between two entries of a legend."""


def grid(width: float, panels: int, per_row: int, *, height: float, kinds: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of panels that share their axes; with several kinds, each panel is so many axes one below the other.

    The axes come panel by panel. Every one of them has ticks with numbers at its foot unless another stands below it;
    the axes' names stand at the left and at the foot alone.
    """
    columns = min(panels, per_row)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(width, max(2.3, height * rows * kinds * (0.9 if kinds > 1 else 1))))
    share: Literal["row", "all"] = "row" if kinds > 1 else "all"
    axes = figure.subplots(rows * kinds, columns, sharex=True, sharey=share, squeeze=False)
    places = [((at // columns) * kinds + kind, at % columns) for at in range(rows * columns) for kind in range(kinds)]
    used = places[: panels * kinds]
    for row, column in places[panels * kinds :]:
        axes[row][column].set_visible(False)
    for row, column in used:
        axes[row][column].tick_params(labelbottom=(row + 1, column) not in used, labelleft=True)
    return figure, [axes[row][column] for row, column in used]


def titled(name: str, figure: Figure, data: pd.DataFrame, title: str, caption: str) -> NamedFigure:
    """The figure with its title and one legend of all its axes, outside of them; it grows by what these need."""
    _name_outer_axes_only(figure)
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
    longest = int(figure.get_figwidth() * LETTERS)
    text = wrapped(title, longest)
    grown = LINE * text.count("\n")
    if handles:
        labels = [wrapped(label, longest - 8) for label in handles]
        widest = max(len(in_unicode(line)) for label in labels for line in label.split("\n"))
        columns = max(1, min(len(labels), int(figure.get_figwidth() * LETTERS / (widest + 7))))
        figure.legend(handles.values(), labels, loc="outside lower center", ncols=columns)
        grown += (LINE * sum(label.count("\n") + 1 for label in labels) + GAP * len(labels)) / columns + 0.1
    figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + grown)
    figure.suptitle(text)
    return NamedFigure(name, figure, data, caption)


def _name_outer_axes_only(figure: Figure) -> None:
    """Take the names of shared axes away from all but the panels at the left and at the foot; one name stands once."""
    panels = [ax for ax in figure.axes if ax.get_subplotspec() is not None and ax.get_visible()]
    taken = {(spec.rowspan.start, spec.colspan.start) for ax in panels if (spec := ax.get_subplotspec()) is not None}
    for ax in panels:
        spec = ax.get_subplotspec()
        assert spec is not None
        row, column = spec.rowspan.start, spec.colspan.start
        if column:
            ax.set_ylabel("")
        if (row + 1, column) in taken:
            ax.set_xlabel("")
    left = [ax for ax in panels if ax.get_ylabel()]
    if len(left) > 1 and len({ax.get_ylabel() for ax in left}) == 1:
        figure.supylabel(left[0].get_ylabel(), fontsize=left[0].yaxis.label.get_fontsize())  # one may be too long
        for ax in left:
            ax.set_ylabel("")
