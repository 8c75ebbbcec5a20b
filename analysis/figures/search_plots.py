"""The plots of a search: points against a parameter, two parameters together, best so far, and importances.

As in `plots`: frames in, axes out. `points` are those of a `Leaderboard`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from polysweep.analysis.figures.axes import WIDE, Places, say_empty, why_empty
from polysweep.analysis.figures.lines import legend, scale_of
from polysweep.analysis.figures.styles import axes_of
from polysweep.analysis.tables.importance import Importance
from polysweep.analysis.tables.wording import axis_label, drawable, field_label
from polysweep.trainer.history import is_accuracy

FEW: Final = 8
"""Different values up to which each has its tick."""
BEST: Final[dict[str, Any]] = {"linestyle": "none", "marker": "*", "markersize": 13, "markeredgecolor": "black"}
AT_FOOT: Final = {"diverged": "x", "stopped": "v"}
"""By column of the points, the mark at the foot of those without a mean."""


def plot_parameter(
    points: pd.DataFrame, name: str, metric: str, ax: Axes | None = None, *, is_log: bool | None = None
) -> Axes:
    """The metric of each point against a parameter: means, with a bar of one sample std if it has several seeds.

    The best point is a star; a point that lacks a result is hollow; one without a mean, because its seeds have diverged
    or were stopped, is marked at the foot. `is_log`: whether the axis is logarithmic; None if the numbers span more
    than a factor of 20. Words stand side by side.
    """
    ax, scale = axes_of(ax), scale_of(metric)
    ax.set(xlabel=field_label(name), ylabel=axis_label(metric))
    there = points[points[name].notna()]
    if not len(there):
        return say_empty(ax, "no point has it")
    if not there["n"].any() and not there[list(AT_FOOT)].to_numpy().any():
        return say_empty(ax, why_empty(there), is_percent=is_accuracy(metric))
    places = Places.of(there[name])
    x, mean = places.at(there[name]), there["mean"].to_numpy(dtype=float) * scale
    is_ranked, has_mean = there["rank"].notna().to_numpy(dtype=bool), np.isfinite(mean)
    spread = np.nan_to_num(there["std"].to_numpy(dtype=float)) * scale
    if spread[has_mean].any():
        ax.errorbar(x[has_mean], mean[has_mean], spread[has_mean], fmt="none", ecolor="0.7", elinewidth=0.8, zorder=1)
    for chosen, face, label in ((is_ranked, None, ""), (~is_ranked, "none", "lacks a result")):
        if (some := chosen & has_mean).any():
            ax.plot(x[some], mean[some], "o", color="C0", markersize=5, markerfacecolor=face or "C0", label=label)
    first = np.flatnonzero((there["rank"] == 1).fillna(False).to_numpy(dtype=bool) & has_mean)
    if len(first):
        ax.plot(x[first], mean[first], color="C1", label="best", **BEST)
    for column, marker in AT_FOOT.items():
        lost = (there[column] > 0).to_numpy(dtype=bool) & ~has_mean
        if lost.any():
            style: dict[str, Any] = {
                "color": "C3",
                "linestyle": "none",
                "marker": marker,
                "clip_on": False,
                "label": column,
            }
            ax.plot(x[lost], [0.02] * int(lost.sum()), transform=ax.get_xaxis_transform(), **style)
    _scale(ax, places, is_log)
    return legend(ax)


def plot_best_so_far(points: pd.DataFrame, metric: str, ax: Axes | None = None, *, is_maximal: bool = True) -> Axes:
    """The mean of each point in the order of the sweep, and the best mean up to it, of points with all results."""
    ax, scale = axes_of(ax), scale_of(metric)
    ax.set(xlabel="point, in the order of the sweep", ylabel=axis_label(metric))
    ranked = points[points["rank"].notna() & points["mean"].notna()].sort_values("point")
    if not len(ranked):
        return say_empty(ax, why_empty(points), is_percent=is_accuracy(metric))
    order, mean = ranked["point"].to_numpy(), ranked["mean"].to_numpy(dtype=float) * scale
    whole = ranked["n"].to_numpy() == ranked["seeds"].to_numpy()  # a point that lost seeds is not the best before one
    ax.plot(order, mean, "o", color="C0", markersize=5, label="mean of a point")
    if whole.any():
        best = (np.maximum if is_maximal else np.minimum).accumulate(mean[whole])
        ax.step(order[whole], best, where="post", color="C1", label="best so far")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return legend(ax)


def plot_pair(
    points: pd.DataFrame, x: str, y: str, metric: str, ax: Axes | None = None, *, logs: tuple[Any, Any] = (None, None)
) -> Axes:
    """Two parameters against each other, the colour the metric of the point; a star is the best."""
    ax, scale = axes_of(ax), scale_of(metric)
    ax.set(xlabel=field_label(x), ylabel=field_label(y))
    there = points[points[x].notna() & points[y].notna() & points["mean"].notna()]
    if not len(there):
        return say_empty(ax, "no point with a mean has both")
    sides = Places.of(there[x]), Places.of(there[y])
    across, up = sides[0].at(there[x]), sides[1].at(there[y])
    values = there["mean"].to_numpy(dtype=float) * scale
    drawn = ax.scatter(across, up, c=values, cmap="cividis", s=36, edgecolors="0.3", linewidths=0.4)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.colorbar(drawn, ax=ax, label=axis_label(metric))
    first = np.flatnonzero((there["rank"] == 1).fillna(False).to_numpy(dtype=bool))
    if len(first):
        ax.plot(across[first], up[first], color="C1", label="best", **BEST)
    for axis, places, is_log in zip("xy", sides, logs, strict=True):
        if not places.are_numbers:
            labels = [drawable(str(value), 16) for value in places.values]
            ax.set(**{f"{axis}ticks": range(len(labels)), f"{axis}ticklabels": labels})
        elif _is_log(places, is_log):
            ax.set(**{f"{axis}scale": "log"})
            _log_ticks(ax.xaxis if axis == "x" else ax.yaxis, places)
    return legend(ax)


def plot_importance(importance: Importance, ax: Axes | None = None) -> Axes:
    """The permutation importance of each parameter as a bar, the most important at the top; or why none is shown."""
    ax = axes_of(ax)
    ax.set_xlabel("importance (share of the variance of the ranks)")
    ax.grid(axis="y", visible=False)
    if not importance.is_predictive:
        return say_empty(ax, importance.reason or importance.about_the_forest())
    rows = importance.parameters[importance.parameters["importance"].notna()]
    shown = rows["verdict"].str.startswith("shown").to_numpy(dtype=bool)
    labels = [drawable(name.replace("_", " "), 30) for name in rows["parameter"]]
    bars = ax.barh(range(len(rows)), rows["importance"], 0.7, color=["C0" if one else "0.75" for one in shown])
    for which, label in ((True, "effect shown"), (False, "effect not shown")):
        if (places := np.flatnonzero(shown == which)).size:
            bars.patches[places[0]].set_label(label)
    ax.axvline(0, color="0.25", linewidth=0.8)
    ax.set_yticks(range(len(rows)), labels)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    return legend(ax)


def _is_log(places: Places, is_log: bool | None) -> bool:
    low, high = float(places.values[0]), float(places.values[-1])
    return low > 0 and low < high and (high / low > WIDE if is_log is None else is_log)


def _scale(ax: Axes, places: Places, is_log: bool | None) -> None:
    """Ticks at the values themselves if they are few or words, else those of a linear or a logarithmic axis."""
    if len(places.values) <= FEW or not places.are_numbers:
        places.set_ticks(ax, is_log=is_log or None)
    elif _is_log(places, is_log):
        ax.set_xscale("log")
        _log_ticks(ax.xaxis, places)


def _log_ticks(axis: Axis, places: Places) -> None:
    """Numbers at the decades alone, or at 1 and 3 of each if the values span less than two."""
    axis.set_major_locator(LogLocator(subs=(1.0,) if places.values[-1] / places.values[0] >= 100 else (1.0, 3.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
