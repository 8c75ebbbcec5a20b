"""The plots of a selection: data first, then drawing. Frames in, axes out."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.select import Selection
from analysis.tables import subtables
from trainer.history import is_accuracy
from trainer.registry import UserError

STYLE: Final[Any] = {
    **sns.axes_style("whitegrid"),
    **sns.plotting_context("notebook"),
    "figure.constrained_layout.use": True,
    "savefig.bbox": "tight",
    "svg.hashsalt": "polysweep",  # the same plot is the same file
    "svg.fonttype": "path",
}
SCHEDULERS: Final = ("constant", "cosine", "polyak")
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
DASHES: Final = ("-", "--", "-.", ":")


def plot_robustness(cells: pd.DataFrame, metric: str, ax: Axes) -> Axes:
    """Metric against the radius, one line per scheduler with a band of one sample std.

    `cells` are rows of `Selection.cells`: the numbers of the table. A cell with diverged seeds carries a cross at its
    mean, one without a finished seed a cross at the foot.
    """
    scale = 100 if is_accuracy(metric) else 1
    for scheduler, look in _looks(cells["scheduler"]).items():
        line = cells[cells["scheduler"] == scheduler].sort_values("rho")
        done = line[line["n"] > 0]
        mean, std = done["mean"] * scale, (done["std"] * scale).fillna(0)
        ax.plot(done["rho"], mean, label=scheduler, **look)
        ax.fill_between(done["rho"], mean - std, mean + std, color=look["color"], alpha=0.2, linewidth=0)
        some = done[done["diverged"] > 0]
        ax.plot(some["rho"], some["mean"] * scale, **_cross(look, ax.transData))
        none = line[(line["n"] == 0) & (line["diverged"] > 0)]
        ax.plot(none["rho"], [0.02] * len(none), **_cross(look, ax.get_xaxis_transform()))
    if (cells["diverged"] > 0).any():
        ax.plot([], [], linestyle="none", marker="x", color="0.3", label="diverged seeds")
    ax.set(xlabel="radius rho", ylabel=_unit(metric))
    if cells["rho"].notna().any():
        ax.set_xticks(sorted(cells["rho"].dropna().unique()))
    ax.legend()
    return ax


def plot_curves(history: pd.DataFrame, column: str, ax: Axes) -> Axes:
    """A history column against the epoch, one line per scheduler: mean and one sample std over seeds.

    `history` has the columns epoch, scheduler and `column`, one row per trial and epoch.
    """
    scale = 100 if is_accuracy(column) else 1
    for scheduler, look in _looks(history["scheduler"]).items():
        rows = history[history["scheduler"] == scheduler]
        seeds = rows.groupby("epoch")[column]
        mean, std = seeds.mean() * scale, (seeds.std() * scale).fillna(0)
        ax.plot(mean.index, mean, label=scheduler, **{**look, "marker": ""})
        ax.fill_between(mean.index, mean - std, mean + std, color=look["color"], alpha=0.2, linewidth=0)
    ax.set(xlabel="epoch", ylabel=_unit(column))
    return ax


def figures(selection: Selection) -> Iterator[tuple[str, Figure]]:
    """Every figure of a selection with its file name; the caller closes them."""
    name = selection.pulled.spec.name
    for values, cells in subtables(selection):
        suffix = "".join(f"-{key}={value}" for key, value in values.items())
        title = f"{name} {' '.join(f'{k}={v}' for k, v in values.items())}".strip()
        chosen = ", selected on test" if selection.on_test else ""
        with mpl.rc_context(dict(STYLE)):
            if cells["rho"].notna().any():
                figure, ax = plt.subplots(figsize=(6.4, 4.4))
                plot_robustness(cells, selection.metric, ax)
                ax.set_title(f"{title}: {selection.epoch} epoch, n = {_n(cells)}{chosen}", fontsize="medium")
                yield f"robustness{suffix}", figure
            history = _chosen_history(selection, cells)
            for file, column in (("curves", selection.metric), ("gamma", "gamma/mean")):
                yield f"{file}{suffix}", _by_radius(history, column, f"{title}: {_unit(column)}{chosen}")


def save_all(selection: Selection, folder: Path) -> list[Path]:
    """Write every figure as PNG and SVG.

    Raises `UserError` where the folder cannot be written, or where nothing has been trained yet.
    """
    require_history(selection)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, figure in figures(selection):
            for kind in ("png", "svg"):
                path = folder / f"{name}.{kind}"
                path.write_bytes(image(figure, kind))
                paths.append(path)
            plt.close(figure)
    except OSError as error:
        raise UserError(f"--out: {folder} cannot be written: {error}") from None
    return paths


def image(figure: Figure, kind: str) -> bytes:
    """The figure as `png` or `svg`, without a date in it."""
    buffer = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def require_history(selection: Selection) -> None:
    """Raise `UserError` where no trial has an epoch to show."""
    if selection.pulled.history.empty:
        raise UserError(f"sweep {selection.pulled.spec.name!r}: no trial has finished an epoch yet")


def _by_radius(history: pd.DataFrame, column: str, title: str) -> Figure:
    """One panel per radius, sharing both axes."""
    radii = sorted(history["rho"].dropna().unique()) or [None]
    figure, axes = plt.subplots(
        1, len(radii), figsize=(2.2 + 2.6 * len(radii), 3.4), sharex=True, sharey=True, squeeze=False
    )
    for ax, rho in zip(axes[0], radii, strict=True):
        panel = history if rho is None else history[history["rho"] == rho]
        plot_curves(panel, column, ax)
        ax.set_title("" if rho is None else f"rho = {rho:g}", fontsize="medium")
        ax.label_outer()
    axes[0][-1].legend()
    figure.suptitle(title, fontsize="medium")
    return figure


def _chosen_history(selection: Selection, cells: pd.DataFrame) -> pd.DataFrame:
    """The history of the chosen trials of these cells that have finished, so that n is one along a curve."""
    keys = ["rho", "scheduler", *selection.varying]
    finished = selection.values[selection.values["outcome"] == "finished"]
    trials = finished.merge(cells[keys].drop_duplicates(), on=keys)
    return selection.pulled.history.merge(trials[["trial_id", "rho", "scheduler"]], on="trial_id")


def _looks(schedulers: pd.Series) -> dict[str, dict[str, Any]]:
    """By scheduler its colour, marker and dash: distinct also in grey, the same in every plot."""
    present = list(dict.fromkeys(schedulers))
    order = [s for s in SCHEDULERS if s in present] + [s for s in present if s not in SCHEDULERS]
    colors = sns.color_palette("colorblind")
    places = {s: SCHEDULERS.index(s) if s in SCHEDULERS else len(SCHEDULERS) + i for i, s in enumerate(order)}
    return {
        s: {
            "color": colors[places[s] % len(colors)],
            "marker": MARKERS[places[s] % len(MARKERS)],
            "linestyle": DASHES[places[s] % len(DASHES)],
        }
        for s in order
    }


def _cross(look: Mapping[str, Any], transform: Any) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": "x",
        "markersize": 12,
        "markeredgewidth": 2,
        "color": look["color"],
        "transform": transform,
    }


def _unit(column: str) -> str:
    return f"{column} (%)" if is_accuracy(column) else column


def _n(cells: pd.DataFrame) -> str:
    low, high = cells["n"].min(), cells["n"].max()
    return str(low) if low == high else f"{low} to {high}"
