"""Accuracy against curvature, a point per run: whether flatter minima are the better ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from scipy.stats import spearmanr

from polysweep.analysis.data.frames import names_of
from polysweep.analysis.figures import captions
from polysweep.analysis.figures.axes import say_empty
from polysweep.analysis.figures.files import NamedFigure
from polysweep.analysis.figures.lines import Looks, legend, lines_of, scale_of
from polysweep.analysis.figures.panels import titled
from polysweep.analysis.figures.styles import axes_of
from polysweep.analysis.tables.curvature import curvature_runs, drawn_columns
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.wording import axis_label
from polysweep.sweeps.planning.welch import p_text
from polysweep.trainer.history import is_accuracy

FEWEST: Final = 4
"""Runs from which on a rank correlation is worth printing."""


def plot_curvature(
    runs: pd.DataFrame,
    column: str,
    metric: str,
    ax: Axes | None = None,
    *,
    lines: str | Sequence[str] = "scheduler",
    looks: Looks | None = None,
) -> Axes:
    """`metric` against the curvature `column`, one point per run, one look per method.

    `runs` are rows of `curvature_runs`. Above the axes are the measure, Spearman's rank correlation over all runs, and
    its p value if no relation were there: a guide, and no test of a claim, as the runs of one method are alike.
    """
    ax = axes_of(ax)
    ax.set_ylabel(axis_label(metric))
    drawn = runs[runs[column].notna() & runs[metric].notna()]
    if not len(drawn):
        ax.set_title(axis_label(column), fontsize=7.5)
        return say_empty(ax, "no run was measured", is_percent=is_accuracy(metric))
    for line in lines_of(drawn, names_of(lines), looks):
        look = {"color": line.look["color"], "marker": line.look["marker"]}
        ax.scatter(line.rows[column], line.rows[metric] * scale_of(metric), label=line.label, s=22, alpha=0.8, **look)
    if (drawn[column] > 0).all() and drawn[column].max() > 10 * drawn[column].min():
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=6))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
    ax.set_title(f"{axis_label(column)}\n{correlation_text(drawn[column], drawn[metric])}", fontsize=7.5)
    return legend(ax)


def correlation_text(x: pd.Series, y: pd.Series) -> str:
    """`rank corr. -0.71, p = 0.0041, n = 36`."""
    count = f"n = {len(x)}"
    if len(x) < FEWEST or x.nunique() < 2 or y.nunique() < 2:
        return count
    test = spearmanr(x, y)
    return f"rank corr. {test.statistic:+.2f}, {p_text(float(test.pvalue))}, {count}"


def curvature_figure(
    selection: Selection, width: float, *, lines: Sequence[str] = ("scheduler",), looks: Looks | None = None
) -> NamedFigure | None:
    """A panel per measure of curvature; None if nothing was measured."""
    columns = drawn_columns(selection)
    if not columns:
        return None
    metric, runs = curvature_runs(selection)
    per_row = {3.35: 1, 6.75: 2}.get(width, 3)
    across = min(per_row, len(columns))
    figure = Figure(figsize=(width, 2.5 * math.ceil(len(columns) / across)))
    axes = np.atleast_1d(figure.subplots(math.ceil(len(columns) / across), across, sharey=True)).ravel()
    for column, ax in zip(columns, axes, strict=False):
        plot_curvature(runs, column, metric, ax, lines=lines, looks=looks)
    for ax in axes[len(columns) :]:
        ax.set_visible(False)
    which = selection.pulled.protocol.probed[columns[0]]
    about = f"{axis_label(metric)} against curvature at the {which} epoch, a point per run"
    caption = captions.sentence(
        f"{axis_label(metric)} of every chosen run against the curvature at its weights", {},
        "above each panel is Spearman's rank correlation over all runs, with the p value of none",
    )  # fmt: skip
    return titled("curvature", figure, runs, captions.title(selection, {}, about), caption)
