"""The drawing of every plot: frames in, axes out. What is drawn is what the tables show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
from matplotlib import colors as named_colors
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from trainer.history import is_accuracy

STYLE: Final = Path(__file__).with_name("polysweep.mplstyle")
SCHEDULERS: Final = ("constant", "cosine", "polyak")
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
DASHES: Final = ("-", "--", "-.", ":")
AXES: Final = {"ascent_gain": "ascent gain f(e) - f(x)"}
"""By history column what its axis says, if that is not its name."""
LOST: Final = {"diverged": "x", "stalled": "+"}
"""By column of the cells the mark of a mean of which some seeds have diverged, or are stalled."""
QUANTILES: Final = (0.1, 0.9)
"""The band of the step size over epochs."""


def plot_robustness(cells: pd.DataFrame, metric: str, ax: Axes, published: pd.DataFrame | None = None) -> Axes:
    """Metric against the radius, one line per scheduler with a band of one sample std.

    `cells` are rows of `Selection.cells`: the numbers of the table. A cell with diverged seeds carries a cross at its
    mean, one with stalled seeds a plus, one without a finished seed a cross at the foot. `published` has the columns
    rho, scheduler, mean and std, in percent for an accuracy: thin grey-edged lines beside ours.
    """
    scale = scale_of(metric)
    for scheduler, look in looks(cells["scheduler"]).items():
        line = cells[cells["scheduler"] == scheduler].sort_values("rho")
        _line(line, "rho", scale, look, str(scheduler), ax)
        if published is not None:
            theirs = published[published["scheduler"] == scheduler].sort_values("rho")
            thin = {**look, "linewidth": 0.9, "markerfacecolor": "none", "alpha": 0.75}
            if len(theirs):
                ax.errorbar(
                    theirs["rho"],
                    theirs["mean"],
                    yerr=theirs["std"],
                    capsize=2,
                    label=f"{scheduler}, published",
                    **thin,
                )
    _mark_lost(cells, ax)
    ax.set(xlabel="radius rho", ylabel=unit(metric))
    _ticks(ax, cells["rho"].dropna())
    ax.legend()
    return ax


def plot_stability(candidates: pd.DataFrame, x: str, metric: str, ax: Axes) -> Axes:
    """Metric against the step size `lr` or the cap `gamma_b`, log axis, one line per radius with a band of one std.

    `candidates` are rows of `Selection.candidates` of one scheduler. Where other parameters were tuned too, the best
    over them at each `x` is drawn, unless one of them lacks a result. Crosses as in `plot_robustness`.
    """
    scale = scale_of(metric)
    points = best_at(candidates, x)[0]
    for rho, look in _sequence(points["rho"]).items():
        line = points[points["rho"] == rho] if not pd.isna(rho) else points[points["rho"].isna()]
        _line(line.sort_values(x), x, scale, look, "" if pd.isna(rho) else f"rho = {rho:g}", ax)
    _mark_lost(points, ax)
    if (points[x] > 0).all() and points["mean"].notna().any():
        ax.set_xscale("log")
    names = {"lr": "step size lr", "gamma_b": "cap gamma_b"}
    ax.set(xlabel=names.get(x, x), ylabel=unit(metric))
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


def best_at(candidates: pd.DataFrame, x: str) -> tuple[pd.DataFrame, int]:
    """Of each radius and `x` the best candidate over the other tuned parameters; and how many have none yet.

    Where one of several candidates lacks a result, which of them is the best is not known: there is no mean.
    """
    if "rank" not in candidates:
        return candidates, 0
    points = candidates.sort_values("rank")
    groups = points.assign(lacks=points["failed"] + points["missing"]).groupby(["rho", x], dropna=False)["lacks"]
    undecided = (groups.transform("sum") > 0) & (groups.transform("size") > 1)
    points = points.assign(mean=points["mean"].mask(undecided), std=points["std"].mask(undecided))
    kept = points.drop_duplicates(["rho", x])
    return kept, int(undecided[kept.index].sum())


def plot_heatmap(cells: pd.DataFrame, metric: str, ax: Axes, x: str = "gamma_b", y: str = "rho") -> Axes:
    """Mean of the metric over `x` and `y`; a square says how many of its seeds have finished where not all have."""
    scale = scale_of(metric)
    import seaborn as sns  # here, because it takes half a second

    means = cells.pivot(index=y, columns=x, values="mean").sort_index(ascending=False) * scale
    texts = cells.assign(text=[_square(cell, metric) for cell in cells.to_dict("records")])
    labels = (
        texts.pivot(index=y, columns=x, values="text").reindex(index=means.index, columns=means.columns).fillna("-")
    )
    sns.heatmap(
        means, annot=labels, fmt="", cmap="cividis", ax=ax, cbar_kws={"label": unit(metric)}, annot_kws={"fontsize": 8},
        linewidths=0.5, linecolor="white",
    )  # fmt: skip
    for row, column in np.argwhere(means.isna().to_numpy()):  # seaborn leaves these empty
        text = labels.iloc[row, column]
        ax.text(column + 0.5, row + 0.5, str(text), ha="center", va="center", fontsize=8)
    ax.set_facecolor("0.9")
    ax.set(xlabel=f"cap {x}" if x == "gamma_b" else x, ylabel="radius rho" if y == "rho" else y)
    return ax


def plot_scores(scores: pd.DataFrame, metric: str, ax: Axes) -> Axes:
    """Robustness scores as bars with their 95 % intervals, one group per table: the smaller, the more robust.

    `scores` are those of `analysis.figures.robustness_scores`: columns table, scheduler, drop, low, high, diverged (a
    cross: no seed has finished at the largest radius).
    """
    scale = scale_of(metric)
    found = looks(scores["scheduler"])
    tables = list(dict.fromkeys(scores["table"]))
    width = 0.8 / len(found)
    for at, (scheduler, look) in enumerate(found.items()):
        bars = scores[scores["scheduler"] == scheduler].set_index("table").reindex(tables)
        places = np.arange(len(tables)) + (at - (len(found) - 1) / 2) * width
        hatch = ("", "//", "..", "xx", "\\\\", "++")[at % 6]
        reach = np.array([bars["drop"] - bars["low"], bars["high"] - bars["drop"]], dtype=float) * scale
        reach[~np.isfinite(reach)] = 0.0  # of a drop whose interval has no end on that side
        ax.bar(
            places, bars["drop"] * scale, width * 0.92, yerr=reach, capsize=3, color=look["color"],
            hatch=hatch, edgecolor="white", ecolor="0.2", label=scheduler,
        )  # fmt: skip
        lost = places[bars["diverged"].fillna(False).to_numpy(dtype=bool)]
        if len(lost):
            ax.plot(lost, [0.02] * len(lost), **_cross(look, ax.get_xaxis_transform()))
    ax.axhline(0, color="0.25", linewidth=0.8)
    turn = 25 if max(map(len, tables)) > 14 and len(tables) > 1 else 0
    ax.set_xticks(range(len(tables)), tables, rotation=turn, ha="right" if turn else "center")
    ax.set(ylabel=f"drop of {metric}" + (" (points)" if scale == 100 else ""), xlabel="")
    ax.grid(axis="x", visible=False)
    ax.legend()
    return ax


def plot_curves(history: pd.DataFrame, column: str, ax: Axes) -> Axes:
    """A history column against the epoch, one line per scheduler: mean and one sample std over seeds.

    `history` has the columns epoch, scheduler and `column`, one row per trial and epoch.
    """
    scale = scale_of(column)
    for scheduler, look in looks(history["scheduler"]).items():
        rows = history[history["scheduler"] == scheduler]
        seeds = rows.groupby("epoch")[column]
        mean, std = seeds.mean() * scale, (seeds.std() * scale).fillna(0)
        ax.plot(mean.index, mean, label=scheduler, **{**look, "marker": ""})
        ax.fill_between(mean.index, mean - std, mean + std, color=look["color"], alpha=0.2, linewidth=0)
    ax.set(xlabel="epoch", ylabel=unit(column))
    _whole_epochs(ax)
    return ax


def plot_gamma(history: pd.DataFrame, ax: Axes) -> Axes:
    """The mean step size of each epoch: median over trials, and the band of their 10 % and 90 % quantiles; log axis.

    `history` has the columns epoch, scheduler and gamma/mean.
    """
    low, high = QUANTILES
    for scheduler, look in looks(history["scheduler"]).items():
        rows = history[history["scheduler"] == scheduler].groupby("epoch")["gamma/mean"]
        middle = rows.median()
        ax.plot(middle.index, middle, label=scheduler, **{**look, "marker": ""})
        ax.fill_between(
            middle.index, rows.quantile(low), rows.quantile(high), color=look["color"], alpha=0.2, linewidth=0
        )
    if (history["gamma/mean"].dropna() > 0).all() and len(history["gamma/mean"].dropna()):
        ax.set_yscale("log")
    ax.set(xlabel="epoch", ylabel="step size")
    _whole_epochs(ax)
    return ax


def plot_shares(history: pd.DataFrame, ax: Axes) -> Axes:
    """The shares of an epoch's steps at the cap gamma_b (solid) and at the safeguard gamma = 0 (dotted), in percent.

    `history` has the columns epoch, scheduler, gamma/cap_share and gamma/zero_share; only schedulers that have a cap.
    """
    for scheduler, look in looks(history["scheduler"]).items():
        rows = history[history["scheduler"] == scheduler]
        if scheduler != "polyak" and not (rows[["gamma/cap_share", "gamma/zero_share"]].fillna(0) > 0).any(axis=None):
            continue
        for column, dash, what in (("gamma/cap_share", "-", "at the cap"), ("gamma/zero_share", ":", "at gamma = 0")):
            mean = rows.groupby("epoch")[column].mean() * 100
            ax.plot(mean.index, mean, color=look["color"], linestyle=dash, label=f"{scheduler} {what}")
    ax.set(xlabel="epoch", ylabel="steps (%)", ylim=(-4, 104))
    _whole_epochs(ax)
    return ax


def looks(schedulers: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """By scheduler its colour, marker and dash: distinct also in grey, the same in every plot."""
    present = [name for name in dict.fromkeys(schedulers) if not pd.isna(name)]
    order = [s for s in SCHEDULERS if s in present] + [s for s in present if s not in SCHEDULERS]
    colors = mpl.rc_params_from_file(STYLE, use_default_template=False)["axes.prop_cycle"].by_key()["color"]
    places = {s: SCHEDULERS.index(s) if s in SCHEDULERS else len(SCHEDULERS) + i for i, s in enumerate(order)}
    return {
        s: {
            "color": named_colors.to_rgb(colors[places[s] % len(colors)]),
            "marker": MARKERS[places[s] % len(MARKERS)],
            "linestyle": DASHES[places[s] % len(DASHES)],
        }
        for s in order
    }


def _sequence(values: pd.Series) -> dict[Any, dict[str, Any]]:
    """By radius a colour, from light to dark, a marker and a dash."""
    import seaborn as sns

    present = [*sorted(values.dropna().unique()), *([math.nan] if values.isna().any() else [])]
    colors = sns.color_palette("crest", len(present))
    return {
        value: {"color": colors[at], "marker": MARKERS[at % len(MARKERS)], "linestyle": DASHES[at % len(DASHES)]}
        for at, value in enumerate(present)
    }


def _line(line: pd.DataFrame, x: str, scale: float, look: Mapping[str, Any], label: str, ax: Axes) -> None:
    """Mean and band of the points that have one; crosses where seeds have diverged."""
    done = line[(line["n"] > 0) | (line["undecided"] != "")] if "undecided" in line else line[line["n"] > 0]
    mean, std = done["mean"] * scale, (done["std"] * scale).fillna(0)
    ax.plot(done[x], mean, label=label or None, **look)
    ax.fill_between(done[x], mean - std, mean + std, color=look["color"], alpha=0.2, linewidth=0)
    for column, marker in LOST.items():
        some = done[done[column] > 0]
        if len(some):  # an artist without points would still take part in the layout
            ax.plot(some[x], some["mean"] * scale, **_cross(look, ax.transData, marker))
    none = line[(line["n"] == 0) & (line["diverged"] > 0) & (line["failed"] + line["missing"] == 0)]
    if len(none):
        ax.plot(none[x], [0.02] * len(none), **_cross(look, ax.get_xaxis_transform()))


def _mark_lost(cells: pd.DataFrame, ax: Axes) -> None:
    """Say in the legend what the crosses mean, if there are any."""
    for column, marker in LOST.items():
        if (cells[column] > 0).any():
            ax.plot([], [], linestyle="none", marker=marker, color="0.3", label=f"{column} seeds")


def _ticks(ax: Axes, values: pd.Series) -> None:
    """A tick at every radius, while there is room for them."""
    there = sorted(values.unique())
    if 0 < len(there) <= 8:
        ax.set_xticks(there)


def _whole_epochs(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))


def _cross(look: Mapping[str, Any], transform: Any, marker: str = "x") -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": marker,
        "markersize": 11,
        "markeredgewidth": 2,
        "color": look["color"],
        "transform": transform,
        "clip_on": False,
    }


def _square(cell: Mapping[Any, Any], metric: str) -> str:
    if math.isnan(cell["mean"]) and cell["n"]:
        return "undecided"
    if not cell["n"]:
        return "diverged" if cell["diverged"] else "no run"
    text = f"{cell['mean'] * scale_of(metric):.2f}" if is_accuracy(metric) else f"{cell['mean']:.3g}"
    return text if cell["n"] == cell["seeds"] else f"{text}\n{cell['n']}/{cell['seeds']}"


def scale_of(metric: str) -> int:
    """100 for an accuracy, which is shown in percent, else 1."""
    return 100 if is_accuracy(metric) else 1


def unit(column: str) -> str:
    """The label of an axis."""
    return f"{column} (%)" if is_accuracy(column) else AXES.get(column, column)


def n_of(cells: pd.DataFrame) -> str:
    """`3`, or `2 to 3`."""
    low, high = cells["n"].min(), cells["n"].max()
    return str(low) if low == high else f"{low} to {high}"


def panels(values: Sequence[Any], per_row: int) -> tuple[int, int]:
    """Rows and columns of a grid of panels."""
    columns = min(len(values), per_row)
    return math.ceil(len(values) / columns), columns
