"""Plots over the epochs: metrics, step sizes, and shares of steps. As in `plots`: frames in, axes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd
from matplotlib.axes import Axes

from polysweep.analysis.data.frames import names_of
from polysweep.analysis.figures.axes import log_y, say_empty, whole_epochs
from polysweep.analysis.figures.lines import Looks, band, legend, lines_of
from polysweep.analysis.figures.styles import axes_of
from polysweep.analysis.tables.wording import axis_label
from polysweep.trainer.history import is_accuracy

QUANTILES: Final = (0.1, 0.9)
"""The band of the step size over epochs."""
CAPPED: Final = ("polyak", "decsps", "momo")
"""Schedulers with a cap, whose shares of steps are drawn even if they are 0."""


def plot_curves(
    history: pd.DataFrame,
    column: str,
    ax: Axes | None = None,
    *,
    lines: str | Sequence[str] = "scheduler",
    looks: Looks | None = None,
) -> Axes:
    """A history column against the epoch, one line per scheduler: mean and one sample std over seeds.

    `history` has the columns epoch, those of `lines` and `column`, one row per trial and epoch. Accuracies stay in
    0-100 %.
    """
    ax = axes_of(ax)
    ax.set(xlabel="epoch", ylabel=axis_label(column))
    whole_epochs(ax)
    if column not in history or history[column].isna().all():
        return say_empty(ax, "no finished trial has logged it", is_percent=is_accuracy(column))
    for line in lines_of(history, names_of(lines), looks):
        seeds = line.rows.groupby("epoch")[column]
        mean, std = seeds.mean().astype(float), seeds.std().astype(float)
        band(mean.index, mean, std, column, line, ax, marker="")
    return legend(ax)


def plot_gamma(
    history: pd.DataFrame,
    ax: Axes | None = None,
    *,
    lines: str | Sequence[str] = "scheduler",
    looks: Looks | None = None,
    is_log: bool = True,
) -> Axes:
    """The mean step size of each epoch: median over trials, and the band of their 10 % and 90 % quantiles.

    `history` has the columns epoch, those of `lines` and gamma/mean. The axis is logarithmic where all are positive.
    """
    ax, column = axes_of(ax), "gamma/mean"
    ax.set(xlabel="epoch", ylabel=axis_label(column))
    whole_epochs(ax)
    if column not in history or history[column].isna().all():
        return say_empty(ax, "no finished trial has logged it")
    for line in lines_of(history, names_of(lines), looks):
        rows = line.rows.groupby("epoch")[column]
        middle = rows.median().astype(float)
        ax.plot(middle.index, middle, label=line.label, **{**line.look, "marker": ""})
        low, high = (rows.quantile(share).astype(float) for share in QUANTILES)
        ax.fill_between(middle.index, low, high, color=line.look["color"], alpha=0.2, linewidth=0)
    if is_log:
        log_y(ax, history[column].astype(float).to_numpy())
    return legend(ax)


def plot_shares(
    history: pd.DataFrame,
    ax: Axes | None = None,
    *,
    lines: str | Sequence[str] = "scheduler",
    looks: Looks | None = None,
) -> Axes:
    """The shares of an epoch's steps at the cap (solid) and at the safeguard gamma = 0 (dotted), in percent.

    `history` has the columns epoch, those of `lines`, gamma/cap_share and gamma/zero_share; only lines that have a cap
    or such steps.
    """
    ax = axes_of(ax)
    styles = {"gamma/cap_share": ("-", "at the cap"), "gamma/zero_share": (":", r"at $\gamma$ = 0")}
    ax.set(xlabel="epoch", ylabel="steps (%)", ylim=(-4, 104))
    whole_epochs(ax)
    there = [column for column in styles if column in history and history[column].notna().any()]
    if not there:
        return say_empty(ax, "no finished trial has logged it")
    drawn: set[str] = set()
    for line in lines_of(history, names_of(lines), looks):
        columns = [column for column in there if _has(line.rows, column)]
        for column in columns:
            mean = line.rows.groupby("epoch")[column].mean().astype(float) * 100
            label = line.label if column == columns[0] else None
            ax.plot(mean.index, mean, color=line.look["color"], linestyle=styles[column][0], label=label)
        drawn.update(columns)
    for column in (column for column in there if column in drawn):
        ax.plot([], [], color="0.3", linestyle=styles[column][0], label=f"steps {styles[column][1]}")
    return legend(ax) if drawn else say_empty(ax, "no step size has a cap here")


def _has(rows: pd.DataFrame, column: str) -> bool:
    """Whether steps of the rows can be, or have been, where a column counts them."""
    has_cap = "scheduler" in rows and bool(rows["scheduler"].isin(CAPPED).any())
    return has_cap or bool((rows[column].fillna(0) > 0).any())
