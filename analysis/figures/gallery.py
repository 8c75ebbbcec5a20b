"""Every figure of a selection, each with the frame that it was drawn from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polysweep.analysis.data.frames import names_of
from polysweep.analysis.figures import captions, plots
from polysweep.analysis.figures.budget_plots import are_curves, budget_figure, table_curves
from polysweep.analysis.figures.curvature_plots import curvature_figure
from polysweep.analysis.figures.epoch_plots import plot_curves, plot_gamma, plot_shares
from polysweep.analysis.figures.epochs import GAMMA, chosen_history, over_epochs, perturbed, require_history
from polysweep.analysis.figures.files import NamedFigure, figure_name, require_kinds, write
from polysweep.analysis.figures.lines import Looks, line_names
from polysweep.analysis.figures.noise_plots import noise_figures
from polysweep.analysis.figures.optimizer_plots import COMPARED, optimizer_figures
from polysweep.analysis.figures.panels import grid, titled
from polysweep.analysis.figures.scores import robustness_scores, table_name
from polysweep.analysis.figures.search_gallery import search_figures
from polysweep.analysis.figures.severity_plots import severity_figures
from polysweep.analysis.figures.styles import in_order, looks_of, one_at_a_time
from polysweep.analysis.tables.budget import budget_curves
from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.selection import Selection, format_value
from polysweep.analysis.tables.wording import (
    axis_label,
    drawable,
    field_label,
    in_unicode,
    settings,
    symbol,
    value_text,
    wrapped,
)
from polysweep.trainer.errors import UserError, expected

WIDTHS: Final = {"page": 6.75, "column": 3.35, "screen": 10.0}
"""Inches: the text and the column width of the usual conference styles, and that of the report."""
NO_BREAK: Final = "\N{NO-BREAK SPACE}"
Published = Callable[[pd.DataFrame], pd.DataFrame | None]
"""Of the cells of a table, the published ones: rho, scheduler, mean, std."""


def figures(
    selection: Selection,
    *,
    width: str = "page",
    published: Published | None = None,
    tables: int | None = None,
    cols: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
) -> Iterator[NamedFigure]:
    """Every figure of a selection, in order; `width` is that of a `page`, a `column` or a `screen`.

    `tables`: how many tables have figures of their own, all for None. `cols`: the fields whose values name the lines,
    by default the scheduler; `by`: those of one figure each. All else that varies makes more figures, as in the tables.
    Of a search without tuned parameters, unless `cols` or `by` are given, the figures of its points.

    Raises `UserError` for an unknown width or field, and for the radius in `cols` or `by`: it is the horizontal axis.
    """
    if width not in WIDTHS:
        raise UserError(f"--width: {width!r}; {expected(width, WIDTHS)}")
    if selection.pulled.protocol.is_search and not (cols or by):
        return one_at_a_time(search_figures(selection, WIDTHS[width]))
    layout = Layout.of(selection, None, cols, by)
    if layout.rows != ("rho",):
        option = "--cols" if "rho" in layout.cols else "--by"
        raise UserError(f"{option}: 'rho' is the horizontal axis of the plots; --only rho=VALUE draws some radii alone")
    is_compared = COMPARED in selection.varying and COMPARED not in (*layout.cols, *names_of(by))
    sheet = _Sheet(selection, WIDTHS[width], published, layout, is_compared)
    return one_at_a_time(sheet.all(tables))


@dataclass(frozen=True)
class _Sheet:
    selection: Selection
    width: float
    published: Published | None
    layout: Layout
    is_compared: bool  # whether there is a figure over all optimizers

    def all(self, tables: int | None) -> Iterator[NamedFigure]:
        """Figure after figure, each made when it is asked for."""
        if self.is_compared:
            used = (*self.layout.cols, *self.layout.by)
            kept = [name for name in used if name not in (COMPARED, "scheduler")]
            yield from optimizer_figures(self.selection, kept, self.width)
        for values, cells in itertools.islice(subtables(self.selection, self.layout), tables):
            yield from self.of_table(values, cells)
        yield from noise_figures(self.selection, self.layout, self.width, self._looks)
        corrupted = severity_figures(self.selection, self.layout, self.width, self._looks)
        yield from itertools.islice(corrupted, tables)
        yield from self.of_all()

    @property
    def _metric(self) -> str:
        return self.selection.metric

    @cached_property
    def _looks(self) -> Looks:
        """One look for each line of all figures."""
        return looks_of(line_names(self.selection.cells, self.layout.cols))

    @cached_property
    def _curves(self) -> pd.DataFrame:
        """The budget curves of all cells; they are worked out once for all tables."""
        return budget_curves(self.selection)

    def of_table(self, values: dict[str, Any], cells: pd.DataFrame) -> Iterator[NamedFigure]:
        """The figures of one table."""
        selection, cols = self.selection, self.layout.cols
        figure, ax = self._one(0.68)
        beside = self.published(cells) if self.published and cols == ("scheduler",) else None
        plots.plot_robustness(cells, self._metric, ax, beside, lines=cols, looks=self._looks)
        undecided = int((cells["undecided"] != "").sum())
        gaps = f", {undecided} of {len(cells)} cells undecided" if undecided else ""
        has_radius = bool(cells["rho"].notna().any())
        kind, mark = ("robustness", "band") if has_radius else ("means", "bar")
        per_line = f"against the {captions.RADIUS}, {captions.one_line_per(cols)}"
        what = f"{captions.metric_words(selection)} {per_line if has_radius else f'of each {captions.each(cols)}'}"
        caption = captions.sentence(what, values, captions.means(selection, cells, mark))
        about = f"{captions.facts(selection, cells, f'mean and {mark} of ±{NO_BREAK}std')}{gaps}"
        yield self._titled(kind, values, figure, cells, about, caption)
        history = chosen_history(selection, cells, cols)
        moving = perturbed(history)
        logged = [name for name in GAMMA if name in selection.pulled.logged]
        if self._metric not in selection.pulled.protocol.probed:
            yield self._over_epochs("curves", self._metric, history, values)
        if "ascent_gain" in moving and moving["ascent_gain"].notna().any():
            yield self._over_epochs("ascent-gain", "ascent_gain", moving, values)
        if "gamma/mean" in logged and (not len(history) or history["gamma/mean"].notna().any()):
            yield self._step_sizes(history, values)
        curves = table_curves(selection, self._curves, cells)
        if are_curves(curves):
            yield budget_figure(selection, curves, self.width, lines=cols, looks=self._looks, values=values)

    def _over_epochs(self, kind: str, column: str, history: pd.DataFrame, values: Mapping[str, Any]) -> NamedFigure:
        def draw(rows: pd.DataFrame, ax: Axes) -> Axes:
            return plot_curves(rows, column, ax, lines=self.layout.cols, looks=self._looks)

        selection = self.selection
        figure = self._by_radius(history, draw)
        data = over_epochs(history, [column], self.layout.cols)
        label = axis_label(column)
        about = f"{label}, mean and band of ±{NO_BREAK}std"
        caption = captions.sentence(
            f"{in_unicode(label)} over the epochs{captions.per_radius(history)}, "
            f"{captions.one_line_per(self.layout.cols)}",
            values,
            "mean over the finished trials of the chosen candidates"
            f"{captions.chosen_on(selection)}, {captions.band(column)}",
        )
        return self._titled(kind, values, figure, data, about, caption)

    def _step_sizes(self, history: pd.DataFrame, values: Mapping[str, Any]) -> NamedFigure:
        cols, looks = self.layout.cols, self._looks
        is_log = not len(history) or bool((history["gamma/mean"].dropna() > 0).all())

        def gamma(rows: pd.DataFrame, ax: Axes) -> Axes:
            return plot_gamma(rows, ax, lines=cols, looks=looks, is_log=is_log)

        def shares(rows: pd.DataFrame, ax: Axes) -> Axes:
            return plot_shares(rows, ax, lines=cols, looks=looks)

        figure = self._by_radius(history, gamma, shares)
        data = over_epochs(history, [name for name in GAMMA if name in history], cols)
        about = f"step size, median and band of 10-90{NO_BREAK}% of trials"
        caption = captions.sentence(
            "Mean step size of each epoch, and the share of its steps at the cap and at 0"
            f"{captions.per_radius(history)}, {captions.one_line_per(cols)}",
            values,
            "median of the chosen trials that have finished, the band is from their 10 % to their 90 % quantile",
        )
        return self._titled("gamma", values, figure, data, about, caption)

    def of_all(self) -> Iterator[NamedFigure]:
        """The figures over all tables: step sizes, caps, and robustness scores."""
        selection = self.selection
        for x in ("lr", "gamma_b"):
            if x in (*selection.pulled.protocol.tuned, *selection.varying) and x in selection.candidates:
                yield from self._against(x, selection.candidates)
        scatter = curvature_figure(selection, self.width, lines=self.layout.cols, looks=self._looks)
        if scatter is not None:
            yield scatter
        if selection.cells["rho"].nunique() < 2 or selection.is_maximal is None:
            return
        scores = robustness_scores(selection, self.layout)
        names = self._group_names(scores)
        lines = max([name.count("\n") + 1 for name in names], default=1)
        group = max(0.2 * len(scores) / max(len(names), 1), 0.13 * lines + 0.08)
        figure, ax = self._one(0.3, 0.7 + group * max(len(names), 1))
        plots.plot_scores(scores, self._metric, ax, lines=self.layout.cols, looks=self._looks)
        ax.set_yticks(range(len(names)) if len(names) > 1 else [], names if len(names) > 1 else [], fontsize=8)
        about = f"drop from the smallest radius to the largest, with 95{NO_BREAK}% intervals"
        caption = captions.sentence(
            f"Robustness score: drop of the {captions.metric_words(selection)} from the smallest radius to the "
            "largest, the smaller, the more robust",
            {},
            f"bars are differences of means{captions.chosen_on(selection)}, lines their 95 % intervals",
        )
        yield self._titled("score", {}, figure, scores, about, caption)

    def _group_names(self, scores: pd.DataFrame) -> list[str]:
        """The tables of the scores as labels of at most a third of the width, broken between their fields."""
        drawn = set(scores["table"]) if len(scores) else set()
        tables = {table_name(self.selection, values): values for values, _ in subtables(self.selection, self.layout)}
        longest = min(int(self.width * 6), 28)
        return [wrapped(settings(values), longest) for name, values in tables.items() if name in drawn]

    def _against(self, x: str, candidates: pd.DataFrame) -> Iterator[NamedFigure]:
        """Metric against `x`, and over rho and gamma_b: per choice of the other fields that vary where `x` applies."""
        selection, points = self.selection, candidates[candidates[x].notna()]
        fields = [name for name in ("scheduler", *selection.varying) if name != x]
        others = [name for name in fields if points[name].nunique(dropna=False) > 1 or name == "scheduler"]
        for key, group in points.groupby(others, dropna=False, sort=False):
            if group[x].nunique() < 2:
                continue
            values = {name: value for name, value in zip(others, key, strict=True) if format_value(value) != "-"}
            figure, ax = self._one(0.68)
            plots.plot_stability(group, x, self._metric, ax)
            best, undecided = plots.best_at(group, x)
            gaps = f", {undecided} of {len(best)} points undecided" if undecided else ""
            about = f"{captions.facts(selection, group)}{gaps}"
            caption = captions.sentence(
                f"{captions.metric_words(selection)} against the {in_unicode(field_label(x))}, one line per radius",
                values,
                captions.means(selection, group),
            )
            yield self._titled(f"stability-{x}", values, figure, group, about, caption)
            if x == "gamma_b" and group["rho"].nunique() > 1:
                figure, ax = self._one(0.62, 0.9 + 0.36 * group["rho"].nunique())
                plots.plot_heatmap(best, self._metric, ax)
                about = f"{captions.facts(selection, group, 'mean')}{gaps}"
                caption = captions.sentence(
                    f"{captions.metric_words(selection)} over the {captions.RADIUS} and the {captions.CAP}", values,
                    "means; a square says how many of its seeds have finished where not all have",
                )  # fmt: skip
                yield self._titled("heatmap", values, figure, best, about, caption)

    def _one(self, ratio: float, least: float = 2.4) -> tuple[Figure, Axes]:
        """One pair of axes: as wide as a column, else at most 5.4 inches of a page and 8 of a screen."""
        inches = self.width if self.width < 4 else 0.8 * self.width
        height = min(ratio * inches, 4.2)
        figure = Figure(figsize=(inches, max(least, height)))  # not of pyplot: nothing stays open
        return figure, figure.subplots()

    def _titled(
        self, kind: str, values: Mapping[str, Any], figure: Figure, data: pd.DataFrame, about: str, caption: str
    ) -> NamedFigure:
        return titled(figure_name(kind, values), figure, data, captions.title(self.selection, values, about), caption)

    def _by_radius(self, history: pd.DataFrame, *draw: Callable[[pd.DataFrame, Axes], Axes]) -> Figure:
        """One panel per radius, sharing axes; with two drawings one row of panels for each."""
        radii: Sequence[Any] = in_order(history["rho"]) or [None]
        per_row = {3.35: 2, 6.75: 4}.get(self.width, 5)
        figure, axes = grid(self.width, len(radii), per_row, kinds=len(draw), height=1.9)
        for at, rho in enumerate(radii):
            rows = history if rho is None else history[history["rho"] == rho]
            for which, paint in enumerate(draw):
                paint(rows, axes[at * len(draw) + which])
            if rho is not None:
                axes[at * len(draw)].set_title(f"{symbol('rho')} = {drawable(value_text(rho), 20)}")
        return figure


def save_all(
    selection: Selection,
    folder: Path,
    *,
    kinds: str | Sequence[str] = ("png", "svg"),
    width: str = "page",
    published: Published | None = None,
    cols: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
) -> list[Path]:
    """Write every figure, and the frame that it was drawn from as CSV.

    Raises `UserError` for an unknown kind, width or field, if the folder cannot be written, or if nothing has
    been trained yet.
    """
    asked = require_kinds(kinds)
    require_history(selection)
    drawn = figures(selection, width=width, published=published, cols=cols, by=by)
    return write(drawn, folder, asked)
