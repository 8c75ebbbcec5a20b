"""Plots as they are called from Python."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import polysweep
from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.plots import plot_heatmap, plot_robustness, plot_scores, plot_stability
from polysweep.analysis.figures.scores import robustness_scores
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.layout import subtables
from polysweep.analysis.tables.mean_std import mean_std_table, row_verdicts
from polysweep.analysis.tables.selection import Selection
from polysweep.trainer.errors import UserError
from tests.support.made import by_lr, sweep


def test_rows_of_several_tables_are_refused_with_the_fields_that_differ(optimizers: Selection) -> None:
    cells, metric = optimizers.cells, optimizers.metric
    with_radius = cells[cells["rho"].notna()]
    for call in (
        lambda: plot_robustness(with_radius, metric, Figure().subplots()),
        lambda: plot_heatmap(with_radius, metric, Figure().subplots(), "scheduler", "rho"),
        lambda: plot_stability(optimizers.candidates, "lr", metric, Figure().subplots()),
    ):
        with pytest.raises(UserError, match=r"rows share .*; they differ in .*weight_decay"):
            call()
    with pytest.raises(UserError, match=r"cells of several tables: two are .* with weight_decay=0\.0 and 0\.0005"):
        row_verdicts(optimizers, cells)
    with pytest.raises(UserError, match="cells of several tables"):
        mean_std_table(optimizers, cells)
    lines = ["optimizer", "scheduler", "weight_decay"]
    ax = plot_robustness(cells, metric, Figure().subplots(), lines=lines)
    assert len(ax.get_legend_handles_labels()[1]) == 12, "named as lines they may stand together"
    for _, table in subtables(optimizers):
        assert all(verdict.best != verdict.runner_up for verdict in row_verdicts(optimizers, table))


def test_cells_without_a_radius_are_points_and_beside_others_levels(optimizers: Selection) -> None:
    zero = optimizers.cells[optimizers.cells["weight_decay"] == 0]
    ax = plot_robustness(zero[zero["optimizer"] == "sgd"], "test/top1", Figure().subplots())
    assert [label.get_text() for label in ax.get_xticklabels()] == ["constant", "polyak"]
    heights = [box.lines[0].get_ydata()[0] for box in ax.containers]
    assert heights == pytest.approx([88.0, 93.0])


def test_plots_make_axes_where_none_are_given(pulled: RunSet) -> None:
    selection = select(pulled)
    history = pulled.history.merge(pulled.runs[["trial_id", "scheduler"]], on="trial_id")
    polyak = selection.cells.assign(gamma_b=1.0)[selection.cells["scheduler"] == "polyak"]
    candidates = selection.candidates[selection.candidates["scheduler"] == "constant"]
    for ax in (
        plot_robustness(selection.cells, "test/top1"),
        plot_stability(candidates, "lr", "test/top1"),
        plot_heatmap(polyak, "test/top1"),
        plot_scores(robustness_scores(selection), "test/top1"),
        polysweep.plot_curves(history, "test/top1"),
        polysweep.plot_gamma(history),
        polysweep.plot_shares(history),
    ):
        assert ax.figure.number in plt.get_fignums() and ax.has_data()  # type: ignore[union-attr]
    empty = selection.cells.iloc[:0]
    for ax in (
        plot_robustness(empty, "test/top1"),
        plot_scores(pd.DataFrame(), "test/top1"),
        plot_heatmap(empty.assign(gamma_b=[]), "x"),
    ):
        assert ax.texts
    plt.close("all")


def test_the_robustness_plot_shows_the_numbers_of_the_table(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: "diverged" if (c.rho, c.seed) == (0.4, 1) else by_lr(c)))
    _, ax = plt.subplots()
    assert plot_robustness(selection.cells, "test/top1", ax) is ax
    lines = {line.get_label(): line for line in ax.get_lines()}
    for scheduler in ("constant", "polyak"):
        rows = selection.cells[selection.cells["scheduler"] == scheduler]
        assert list(lines[scheduler].get_xdata()) == [0.1, 0.4]
        assert list(lines[scheduler].get_ydata()) == pytest.approx(list(rows["mean"] * 100))
    crosses = [line for line in ax.get_lines() if line.get_marker() == "x" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in crosses] == [[0.4], [0.4]]
    assert "diverged seeds" in [text.get_text() for text in ax.get_legend().get_texts()]
    plt.close("all")


def test_a_cell_without_a_finished_seed_is_marked_at_the_foot(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: "diverged" if c.rho == 0.4 else by_lr(c)))
    _, ax = plt.subplots()
    plot_robustness(selection.cells, "test/top1", ax)
    crosses = [line for line in ax.get_lines() if line.get_marker() == "x" and len(line.get_xdata())]
    assert [list(line.get_ydata()) for line in crosses] == [[0.02], [0.02]]
    plt.close("all")
