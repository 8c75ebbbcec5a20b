"""Every figure of a selection, each with the frame that it was drawn from; and their files."""

from __future__ import annotations

import io
import itertools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import plots
from analysis.selection import Selection, shown
from analysis.spreadsheet import to_csv
from analysis.tables import subtables
from trainer.registry import UserError, expected

KINDS: Final = ("png", "svg", "pdf")
WIDTHS: Final = {"page": 6.75, "column": 3.35}
"""Inches: the text and the column width of the usual conference styles."""
NO_SCHEDULER: Final = "all runs"
GAMMA: Final = ("gamma/mean", "gamma/cap_share", "gamma/zero_share")
Published = Callable[[pd.DataFrame], pd.DataFrame | None]
"""Of the cells of a table, the published ones: rho, scheduler, mean, std."""


@dataclass(frozen=True)
class Drawn:
    """A figure, its file's name, and the frame that it was drawn from."""

    name: str
    figure: Figure
    data: pd.DataFrame


def figures(
    selection: Selection, *, width: str = "page", published: Published | None = None, tables: int | None = None
) -> Iterator[Drawn]:
    """Every figure of a selection, in order; `width` is that of a `page` or of a `column`.

    `tables`: how many tables have figures of their own, all where None.
    """
    if width not in WIDTHS:
        raise UserError(f"--width: {width!r}; {expected(width, WIDTHS)}")
    sheet = _Sheet(selection, WIDTHS[width], published)
    with mpl.rc_context():
        mpl.style.use(plots.STYLE)
        for values, cells in itertools.islice(subtables(selection), tables):
            yield from sheet.of_table(values, cells)
        yield from sheet.of_all()


@dataclass(frozen=True)
class _Sheet:
    selection: Selection
    width: float
    published: Published | None

    @property
    def _chosen(self) -> str:
        return ", selected on test" if self.selection.on_test else ""

    def of_table(self, values: dict[str, Any], cells: pd.DataFrame) -> Iterator[Drawn]:
        """The figures of one table."""
        suffix = "".join(f"-{key}={value}" for key, value in values.items())
        title = f"{self.selection.pulled.protocol.name} {' '.join(f'{k}={v}' for k, v in values.items())}".strip()
        metric = self.selection.metric
        if cells["rho"].notna().any():
            figure, ax = self._one(0.68)
            plots.plot_robustness(_named(cells), metric, ax, self.published(cells) if self.published else None)
            undecided = int((cells["undecided"] != "").sum())
            gaps = f", {undecided} of {len(cells)} cells undecided" if undecided else ""
            about = f"{title}: {self.selection.epoch} epoch, n = {plots.n_of(cells)}{gaps}"
            yield self._titled(f"robustness{suffix}", figure, cells, about)
        history = self._history(cells)
        for file, column in (("curves", metric), ("ascent-gain", "ascent_gain")):
            rows = history if column == metric else _perturbed(history)
            if column in rows and rows[column].notna().any():
                figure = self._by_radius(rows, lambda rows, ax, c=column: plots.plot_curves(rows, c, ax))  # type: ignore[misc]
                yield self._titled(
                    f"{file}{suffix}", figure, over_epochs(rows, [column]), f"{title}: {plots.unit(column)}"
                )
        if "gamma/mean" in history and history["gamma/mean"].notna().any():
            figure = self._by_radius(history, plots.plot_gamma, plots.plot_shares)
            data = over_epochs(history, [name for name in GAMMA if name in history])
            yield self._titled(f"gamma{suffix}", figure, data, f"{title}: step size, median and 10-90 % of trials")

    def of_all(self) -> Iterator[Drawn]:
        """The figures over all tables: step sizes, caps, and robustness scores."""
        selection, metric = self.selection, self.selection.metric
        for x in ("lr", "gamma_b"):
            if x in (*selection.pulled.protocol.tuned, *selection.varying):
                yield from self._against(x, _named(selection.candidates))
        scores = robustness_scores(selection)
        if len(scores):
            figure, ax = self._one(0.62)
            plots.plot_scores(scores, metric, ax)
            name = selection.pulled.protocol.name
            yield self._titled(
                "score", figure, scores, f"{name}: robustness score, drop from the smallest rho to the largest"
            )

    def _against(self, x: str, points: pd.DataFrame) -> Iterator[Drawn]:
        """Metric against `x`, and over rho and gamma_b: per choice of the other fields that vary where `x` applies."""
        selection, points = self.selection, points[points[x].notna()]
        fields = [name for name in ("scheduler", *selection.varying) if name != x]
        others = [name for name in fields if points[name].nunique(dropna=False) > 1 or name == "scheduler"]
        for key, group in points.groupby(others, dropna=False, sort=False):
            if group[x].nunique() < 2:
                continue
            values = {name: value for name, value in zip(others, key, strict=True) if shown(value) != "-"}
            suffix = "".join(f"-{name}={value}" for name, value in values.items())
            title = " ".join([selection.pulled.protocol.name, *(f"{k}={v}" for k, v in values.items())])
            figure, ax = self._one(0.68)
            plots.plot_stability(group, x, selection.metric, ax)
            best, undecided = plots.best_at(group, x)
            gaps = f", {undecided} of {len(best)} points undecided" if undecided else ""
            about = f"{title}: n = {plots.n_of(group)}{gaps}"
            yield self._titled(f"stability-{x}{suffix}", figure, group, about)
            if x == "gamma_b" and group["rho"].nunique() > 1 and (group["n"] > 0).any():
                figure, ax = self._one(0.62)
                plots.plot_heatmap(best, selection.metric, ax)
                yield self._titled(f"heatmap{suffix}", figure, best, about)

    def _one(self, ratio: float) -> tuple[Figure, Axes]:
        inches = self.width if self.width < 4 else 0.8 * self.width
        figure = Figure(figsize=(inches, max(2.6, ratio * inches)))  # not of pyplot: nothing stays open
        return figure, figure.subplots()

    def _titled(self, name: str, figure: Figure, data: pd.DataFrame, title: str) -> Drawn:
        return titled(name, figure, data, f"{title}{self._chosen}")

    def _by_radius(self, history: pd.DataFrame, *draw: Callable[[pd.DataFrame, Axes], Axes]) -> Figure:
        """One panel per radius, sharing axes; with two drawings one row of panels for each."""
        radii: Sequence[Any] = sorted(history["rho"].dropna().unique()) or [None]
        per_row = 2 if self.width < 4 else 4
        rows, columns = plots.panels(radii, per_row)
        figure = Figure(figsize=(self.width, max(2.3, 1.9 * rows * len(draw))))
        axes = figure.subplots(
            rows * len(draw),
            columns,
            sharex=True,
            sharey="row" if len(draw) > 1 else True,
            squeeze=False,
        )
        for at, rho in enumerate(radii):
            panel = history if rho is None else history[history["rho"] == rho]
            for which, paint in enumerate(draw):
                ax = axes[(at // columns) * len(draw) + which][at % columns]
                paint(panel, ax)
                if which == 0 and rho is not None:
                    ax.set_title(f"rho = {rho}")
                ax.label_outer()
        for at in range(len(radii), rows * columns):
            for which in range(len(draw)):
                axes[(at // columns) * len(draw) + which][at % columns].set_visible(False)
        return figure

    def _history(self, cells: pd.DataFrame) -> pd.DataFrame:
        """The history of the chosen trials of these cells that have finished, so that n is one along a curve."""
        selection = self.selection
        own = {selection.key(cell) for cell in cells.to_dict("records")}
        runs = selection.values[selection.values["outcome"] == "finished"]
        keep = [selection.key(run) in own for run in runs.to_dict("records")]
        trials = _named(runs[keep][["trial_id", "rho", "scheduler", "seed"]]) if len(runs) else runs
        if not len(trials):
            return pd.DataFrame({"rho": [], "scheduler": []})
        found = selection.pulled.columns(["epoch", "_step", selection.metric, "ascent_gain", *GAMMA])
        found = found[found["trial_id"].isin(trials["trial_id"])].merge(
            trials.astype({"trial_id": found["trial_id"].dtype}), on="trial_id"
        )
        if "epoch" not in found and "_step" in found:
            found = found.rename(columns={"_step": "epoch"})
        numbers = [name for name in found.columns if name not in ("trial_id", "rho", "scheduler", "seed")]
        return found.astype(dict.fromkeys(numbers, float))


def titled(name: str, figure: Figure, data: pd.DataFrame, title: str) -> Drawn:
    """The figure with its title and one legend of all its axes outside of them, so that they hide nothing."""
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
    longest = int(figure.get_figwidth() * 11)
    handles = {textwrap.fill(label, longest - 10): handle for label, handle in handles.items()}
    if handles:
        room = int(figure.get_figwidth() * 11 / (max(map(len, handles)) + 7))  # entries of 9 points side by side
        columns = max(1, min(len(handles), room))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
    figure.suptitle(textwrap.fill(title, longest, break_long_words=False, break_on_hyphens=False))
    return Drawn(name, figure, data)


def over_epochs(history: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Per radius, scheduler and epoch the n trials' mean, std, median and quantiles of each column: what is drawn."""
    groups = history.groupby(["rho", "scheduler", "epoch"], dropna=False)
    low, high = plots.QUANTILES
    found: dict[str, Any] = {"n": groups.size()}
    for column in columns:
        one = groups[column]
        found |= {
            f"{column} mean": one.mean(),
            f"{column} std": one.std(),
            f"{column} median": one.median(),
            f"{column} {low:.0%}": one.quantile(low),
            f"{column} {high:.0%}": one.quantile(high),
        }
    return pd.DataFrame(found).reset_index()


def _perturbed(history: pd.DataFrame) -> pd.DataFrame:
    """The runs whose optimizer perturbs: of all others f(e) - f(x) is 0 in every step."""
    if "ascent_gain" not in history:
        return history
    moves = history["ascent_gain"].fillna(0.0).ne(0.0).groupby(history["trial_id"]).transform("any")
    return history[moves]


def robustness_scores(selection: Selection) -> pd.DataFrame:
    """Per table and scheduler the drop of the metric from the smallest radius to the largest one.

    drop = mean at the smallest radius - mean at the largest, in the direction in which more is better, so that a loss
    that rises is a drop too. The radii are those of the sweep, not chosen by the results: without an effect a drop is
    as often negative as positive. Columns table, scheduler, smallest_rho, largest_rho, drop, low and high (its 95 %
    interval, `Selection.difference`), n, diverged (no seed has finished at the largest radius, and some diverged there:
    then there is no drop). Undecided cells have none.
    """
    rows = []
    if selection.is_maximal is None:
        return pd.DataFrame()
    for values, cells in subtables(selection):
        table = " ".join(f"{key}={value}" for key, value in values.items()) or selection.pulled.protocol.name
        with_radius = cells[cells["rho"].notna()]
        for scheduler, line in with_radius.groupby(_named(with_radius)["scheduler"], sort=False):
            if line["rho"].nunique() < 2 or not pd.api.types.is_numeric_dtype(line["rho"]):
                continue
            ends = line.sort_values("rho").iloc[[0, -1]]
            first, last = ends.to_dict("records")
            found = selection.difference([first], [last])
            if not ends["n"].any() or ends["undecided"].any():
                continue
            rows.append(
                {
                    "table": table,
                    "scheduler": scheduler,
                    "smallest_rho": first["rho"],
                    "largest_rho": last["rho"],
                    "drop": found.estimate,
                    "low": found.low,
                    "high": found.high,
                    "n": found.n if first["n"] and last["n"] else 0,
                    "diverged": bool(not last["n"] and last["diverged"] > 0),
                }
            )
    return pd.DataFrame(rows)


def _named(cells: pd.DataFrame) -> pd.DataFrame:
    """A line needs a name, also where no scheduler is known."""
    return cells.assign(scheduler=[NO_SCHEDULER if shown(name) == "-" else name for name in cells["scheduler"]])


def save_all(
    selection: Selection,
    folder: Path,
    *,
    kinds: Sequence[str] = ("png", "svg"),
    width: str = "page",
    published: Published | None = None,
) -> list[Path]:
    """Write every figure, and the frame that it was drawn from as CSV.

    Raises `UserError` for an unknown kind, where the folder cannot be written, or where nothing has been trained yet.
    """
    require_kinds(kinds)
    require_history(selection)
    return write(figures(selection, width=width, published=published), folder, kinds)


def require_kinds(kinds: Sequence[str]) -> None:
    """Raise `UserError` for an unknown kind of file, and where there is none."""
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"--kinds: {kind!r}; {expected(kind, KINDS)}")
    if not kinds:
        raise UserError(f"--kinds: none is given; {expected('', KINDS)}")


def write(all_drawn: Iterable[Drawn], folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Write figures in every format of `kinds`, and their data as CSV; returns the files.

    Raises `UserError` where the folder cannot be written.
    """
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for drawn in all_drawn:
            for kind in kinds:
                path = folder / f"{_file_name(drawn.name)}.{kind}"
                path.write_bytes(image(drawn.figure, kind))
                paths.append(path)
            path = folder / f"{_file_name(drawn.name)}.csv"
            path.write_text(to_csv(drawn.data), encoding="utf-8")
            paths.append(path)
    except OSError as error:
        raise UserError(f"--out: {folder} cannot be written: {error}") from None
    return paths


def image(figure: Figure, kind: str) -> bytes:
    """The figure as `png`, `svg` or `pdf`, without a date in it."""
    buffer = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with mpl.rc_context():
        mpl.style.use(plots.STYLE)
        figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def require_history(selection: Selection) -> None:
    """Raise `UserError` where no trial has an epoch to show: neither a result nor an end."""
    runs = selection.pulled.runs
    if not runs["best_epoch"].notna().any() and not runs["outcome"].isin(["diverged", "failed", "stopped"]).any():
        raise UserError(f"sweep {selection.pulled.protocol.name!r}: no trial has finished an epoch yet")


def _file_name(name: str) -> str:
    """A name without what a path must not have."""
    return name.replace("/", "_").replace(", ", "-").replace(" ", "-")
