"""The drawing of every plot: frames in, axes out. What is drawn is what the tables show.

Each takes axes, or makes new ones, and returns them. `lines` are the fields whose values name the
lines; `looks` gives each its look, where several plots share a legend. Axes without anything to draw say why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from polysweep.analysis.data.frames import names_of
from polysweep.analysis.figures.axes import Places, cross, say_empty, why_empty
from polysweep.analysis.figures.lines import Line, Looks, band, ends, legend, lines_of, require_one_each, scale_of
from polysweep.analysis.figures.styles import axes_of, shades
from polysweep.analysis.tables.wording import axis_label, drawable, field_label, symbol, value_text
from polysweep.trainer.history import is_accuracy

LOST: Final = {"diverged": "x", "stalled": "+"}
"""By column of the cells the mark of a mean of which some seeds have diverged, or are stalled."""


def plot_robustness(
    cells: pd.DataFrame,
    metric: str,
    ax: Axes | None = None,
    published: pd.DataFrame | None = None,
    *,
    lines: str | Sequence[str] = "scheduler",
    looks: Looks | None = None,
) -> Axes:
    """Metric against the radius, one line per scheduler with a band of one sample std; accuracies stay in 0-100 %.

    `cells` are rows of `Selection.cells`: the numbers of the table. A cell with diverged seeds carries a cross at its
    mean, one with stalled seeds a plus, one without a finished seed a cross at the foot. A cell without a radius (SGD)
    is a level across the axes; if no run has one, each line is a point. `published` has the columns rho, scheduler,
    mean and std, in percent for an accuracy: thin grey-edged lines beside ours.

    Raises `UserError` if two cells of a line share a radius: they are of several tables.
    """
    ax, fields = axes_of(ax), names_of(lines)
    require_one_each(cells, [*fields, "rho"], "plot_robustness")
    if len(cells) and cells["rho"].isna().all():
        return _points(cells, metric, ax, fields, looks)
    there = pd.concat([cells["rho"], *([] if published is None else [published["rho"]])])
    places = Places.of(there)
    for line in lines_of(cells, fields, looks):
        with_radius = line.rows[line.rows["rho"].notna()]
        _line(with_radius.iloc[np.argsort(places.at(with_radius["rho"]))], "rho", places, metric, line, ax)
        for cell in line.rows[line.rows["rho"].isna()].to_dict("records"):
            _level(cell, metric, line, ax)
        if published is not None:
            _published(published[published["scheduler"] == line.rows["scheduler"].iloc[0]], places, line, ax)
    _end(cells, metric, ax)
    ax.set(xlabel=field_label("rho"), ylabel=axis_label(metric))
    places.set_ticks(ax)
    return ax


def plot_against(
    cells: pd.DataFrame,
    x: str,
    metric: str,
    ax: Axes | None = None,
    *,
    lines: str | Sequence[str] = "scheduler",
    looks: Looks | None = None,
) -> Axes:
    """Metric against a field of the cells, such as `label_noise`; lines, bands and crosses as in `plot_robustness`.

    Raises `UserError` if two cells of a line share a value of the field.
    """
    ax, fields = axes_of(ax), names_of(lines)
    require_one_each(cells, [*fields, x], "plot_against")
    there = cells[cells[x].notna()]
    places = Places.of(there[x])
    for line in lines_of(there, fields, looks):
        _line(line.rows.iloc[np.argsort(places.at(line.rows[x]))], x, places, metric, line, ax)
    _end(there, metric, ax)
    ax.set(xlabel=field_label(x), ylabel=axis_label(metric))
    places.set_ticks(ax)
    return ax


def plot_stability(candidates: pd.DataFrame, x: str, metric: str, ax: Axes | None = None) -> Axes:
    """Metric against the step size `lr`, the cap `gamma_b` or another tuned field, one line per radius with its std.

    `candidates` are rows of `Selection.candidates` of one cell per radius. Where other parameters were tuned too, the
    best over them at each `x` is drawn, unless one of them lacks a result. Positive numbers stand on a logarithmic
    axis, words side by side. Crosses as in `plot_robustness`.

    Raises `UserError` for candidates of several cells of one radius, such as those of two schedulers.
    """
    ax = axes_of(ax)
    _require_one_cell_each(candidates, x)
    points = best_at(candidates, x)[0]
    points = points[points[x].notna()]
    places = Places.of(points[x])
    for rho, look in shades(points["rho"]).items():
        rows = points[points["rho"].isna()] if pd.isna(rho) else points[points["rho"] == rho]
        label = "" if pd.isna(rho) else f"{symbol('rho')} = {drawable(value_text(rho))}"
        _line(rows.iloc[np.argsort(places.at(rows[x]))], x, places, metric, Line(label, look, rows), ax)
    _end(points, metric, ax)
    ax.set(xlabel=field_label(x), ylabel=axis_label(metric))
    places.set_ticks(ax, is_log=True)
    return ax


def _require_one_cell_each(candidates: pd.DataFrame, x: str) -> None:
    """Raise `UserError` if the candidates of a radius, and of an `x` that is not tuned, are of several cells."""
    if "rank" not in candidates:
        return
    first = candidates[candidates["rank"] == 1]
    of_place = candidates["rank"].eq(1).groupby([candidates["rho"], candidates[x]], dropna=False).sum()
    is_tuned = bool((of_place != 1).any()) or first["scheduler"].nunique() > 1
    require_one_each(first, ["rho"] if is_tuned else ["rho", x], "plot_stability")


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


def plot_heatmap(cells: pd.DataFrame, metric: str, ax: Axes | None = None, x: str = "gamma_b", y: str = "rho") -> Axes:
    """Mean of the metric over `x` and `y`; a square says how many of its seeds have finished where not all have.

    Raises `UserError` if two cells share a square.
    """
    ax = axes_of(ax)
    require_one_each(cells, [x, y], "plot_heatmap")
    ax.set(xlabel=field_label(x), ylabel=field_label(y))
    columns, rows = Places.of(cells[x]).values, Places.of(cells[y]).values[::-1]
    if not columns or not rows:
        return say_empty(ax, why_empty(cells))
    import seaborn as sns  # here, because it takes half a second

    squares = {(cell[y], cell[x]): cell for cell in cells.to_dict("records")}
    texts = [[_square(squares.get((row, column)), metric) for column in columns] for row in rows]
    means = [[squares.get((row, column), {}).get("mean", np.nan) for column in columns] for row in rows]
    values = np.where(np.isfinite(np.array(means, dtype=float)), np.array(means, dtype=float), np.nan) * scale_of(
        metric
    )
    is_empty = bool(np.isnan(values).all())
    words = [[drawable(value_text(value), 16) for value in side] for side in (columns, rows)]
    sns.heatmap(
        pd.DataFrame(values, index=words[1], columns=words[0]), annot=np.array(texts, dtype=object), fmt="",
        cmap="cividis", ax=ax, cbar=not is_empty, cbar_kws={"label": axis_label(metric)},
        annot_kws={"fontsize": 8 if len(columns) < 6 else 6.5}, linewidths=0.5, linecolor="white",
        **({"vmin": 0, "vmax": 1} if is_empty else {}),
    )  # fmt: skip
    for row, column in np.argwhere(np.isnan(values)):  # seaborn leaves these empty
        ax.text(column + 0.5, row + 0.5, texts[row][column], ha="center", va="center", fontsize=6.5)
    ax.set_facecolor("0.9")
    ax.set(xlabel=field_label(x), ylabel=field_label(y))
    ax.tick_params(axis="y", rotation=0)
    return ax


def plot_scores(
    scores: pd.DataFrame,
    metric: str,
    ax: Axes | None = None,
    *,
    lines: str | Sequence[str] = "scheduler",
    looks: Looks | None = None,
) -> Axes:
    """Robustness scores as bars with their 95 % intervals, one group per table: the smaller, the more robust.

    `scores` are those of `robustness_scores`: columns table, the fields of `lines`, drop, low, high, diverged (a cross:
    no seed has finished at the largest radius). Groups stand one below the other, so that their names can be read.
    """
    ax, scale = axes_of(ax), scale_of(metric)
    ax.set_xlabel(f"drop of the {axis_label(metric).removesuffix(' (%)')}" + (" (points)" if scale == 100 else ""))
    ax.grid(axis="y", visible=False)
    if not len(scores):
        return say_empty(ax, "no line has a decided mean at two radii")
    drawn, tables = list(lines_of(scores, names_of(lines), looks)), list(dict.fromkeys(scores["table"]))
    height = 0.8 / len(drawn)
    for at, line in enumerate(drawn):
        bars = line.rows.set_index("table").reindex(tables)
        places = np.arange(len(tables)) + (at - (len(drawn) - 1) / 2) * height
        reach = np.array([bars["drop"] - bars["low"], bars["high"] - bars["drop"]], dtype=float) * scale
        reach[~np.isfinite(reach)] = 0.0  # of a drop whose interval has no end on that side
        ax.barh(
            places, bars["drop"] * scale, height * 0.92, xerr=reach, capsize=2, color=line.look["color"],
            hatch=("", "//", "..", "xx", "\\\\", "++")[at % 6], edgecolor="white", ecolor="0.2", label=line.label,
        )  # fmt: skip
        lost = places[bars["diverged"].eq(True).to_numpy(dtype=bool)]
        if len(lost):
            ax.plot([0.02] * len(lost), lost, **cross(line.look, ax.get_yaxis_transform()))
    ax.axvline(0, color="0.25", linewidth=0.8)
    ax.set_yticks(range(len(tables)), [drawable(table, 200) for table in tables])
    ax.set_ylim(len(tables) - 0.5, -0.5)
    return legend(ax)


def _line(rows: pd.DataFrame, x: str, places: Places, metric: str, line: Line, ax: Axes) -> None:
    """Mean and band of the points that have one; crosses where seeds have diverged."""
    done = rows[(rows["n"] > 0) | (rows["undecided"] != "")] if "undecided" in rows else rows[rows["n"] > 0]
    if len(done):  # an artist without points would still take part in the layout
        band(places.at(done[x]), done["mean"], done["std"], metric, line, ax)
    for column, marker in LOST.items():
        some = done[(done[column] > 0) & done["mean"].notna()]
        if len(some):
            ax.plot(places.at(some[x]), some["mean"] * scale_of(metric), **cross(line.look, ax.transData, marker))
    none = rows[(rows["n"] == 0) & (rows["diverged"] > 0) & (rows["failed"] + rows["missing"] == 0)]
    if len(none):
        ax.plot(places.at(none[x]), [0.02] * len(none), **cross(line.look, ax.get_xaxis_transform()))


def _level(cell: Mapping[Any, Any], metric: str, line: Line, ax: Axes) -> None:
    """A cell without a radius: its mean and band over the whole width."""
    if not np.isfinite(cell["mean"]):
        return
    low, high = ends(cell["mean"], cell["std"], metric)
    style = {key: line.look[key] for key in ("color", "linestyle")}
    ax.axhline(cell["mean"] * scale_of(metric), label=line.label, **style)
    ax.axhspan(float(low), float(high), color=line.look["color"], alpha=0.12, linewidth=0)


def _points(cells: pd.DataFrame, metric: str, ax: Axes, fields: Sequence[str], looks: Looks | None) -> Axes:
    """Cells of which none has a radius: a point with its std for each line, side by side."""
    drawn = list(lines_of(cells, fields, looks))
    scale = scale_of(metric)
    for at, line in enumerate(drawn):
        (cell,) = line.rows.to_dict("records")
        if np.isfinite(cell["mean"]):
            low, high = ends(cell["mean"], cell["std"], metric)
            reach = [[cell["mean"] * scale - low], [high - cell["mean"] * scale]]
            style = {key: line.look[key] for key in ("color", "marker")}
            ax.errorbar([at], [cell["mean"] * scale], yerr=reach, capsize=3, linestyle="none", **style)
            for column, marker in LOST.items():
                if cell[column]:
                    ax.plot([at], [cell["mean"] * scale], **cross(line.look, ax.transData, marker))
        elif cell["diverged"] and not cell["failed"] + cell["missing"]:
            ax.plot([at], [0.02], **cross(line.look, ax.get_xaxis_transform()))
    _end(cells, metric, ax)
    turn = 30 if len(drawn) > 4 else 0
    labels = [drawable(line.label, 24) for line in drawn]
    ax.set_xticks(range(len(drawn)), labels, rotation=turn, ha="right" if turn else "center")
    ax.set(xlim=(-0.5, len(drawn) - 0.5), ylabel=axis_label(metric), xlabel=", ".join(map(field_label, fields)))
    return ax


def _published(theirs: pd.DataFrame, places: Places, line: Line, ax: Axes) -> None:
    if len(theirs):
        theirs = theirs.iloc[np.argsort(places.at(theirs["rho"]))]
        thin = {**line.look, "linewidth": 0.9, "markerfacecolor": "none", "alpha": 0.75}
        ax.errorbar(
            places.at(theirs["rho"]), theirs["mean"], yerr=theirs["std"], capsize=2, label=f"{line.label}, published",
            **thin,
        )  # fmt: skip


def _end(cells: pd.DataFrame, metric: str, ax: Axes) -> None:
    """The legend, what its crosses mean, and what is said where no cell has a mean."""
    if not len(cells) or not cells["mean"].notna().any():
        say_empty(ax, why_empty(cells), is_percent=is_accuracy(metric))
    for column, marker in LOST.items():
        if len(cells) and (cells[column] > 0).any():
            ax.plot([], [], linestyle="none", marker=marker, color="0.3", label=f"{column} seeds")
    legend(ax)


def _square(cell: Mapping[Any, Any] | None, metric: str) -> str:
    if cell is None:
        return "-"
    if np.isnan(cell["mean"]) and cell["n"]:
        return "undecided"
    if not cell["n"]:
        return "diverged" if cell["diverged"] else "no run"
    text = f"{cell['mean'] * scale_of(metric):.2f}" if is_accuracy(metric) else f"{cell['mean']:.3g}"
    return text if cell["n"] == cell["seeds"] else f"{text}\n{cell['n']}/{cell['seeds']}"
