"""Plots as they are called from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import polysweep
from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.gallery import figures, save_all
from polysweep.analysis.figures.plots import plot_heatmap, plot_robustness, plot_scores, plot_stability
from polysweep.analysis.figures.scores import robustness_scores
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.mean_std import mean_std_table, row_verdicts
from polysweep.analysis.tables.selection import Selection
from polysweep.trainer.errors import UserError
from tests.support.drawn import optimizers as optimizers
from tests.support.drawn import pulled as pulled
from tests.support.project import ROOT

# From Python.


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


def test_a_text_is_one_field_wherever_fields_are_asked_for(pulled: RunSet, tmp_path: Path) -> None:
    selection = select(pulled)
    assert Layout.of(selection, "scheduler", "rho") == Layout.of(selection, ["scheduler"], ["rho"])
    assert mean_std_table(selection, rows="scheduler", cols="rho").index.name == "scheduler"
    (verdict, _) = row_verdicts(selection, selection.cells)
    assert verdict.text("rho", "test/top1").startswith("rho 0.1: polyak over constant")
    assert set(pulled.columns("test/top1")) == {"trial_id", "test/top1"}
    assert {path.suffix for path in save_all(selection, tmp_path, kinds="svg")} == {".svg", ".csv"}
    ax = plot_robustness(selection.cells, "test/top1", Figure().subplots(), lines="scheduler")
    assert ax.get_legend_handles_labels()[1] == ["constant", "polyak"]


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


def test_a_generator_that_is_broken_off_leaves_the_settings_of_matplotlib(pulled: RunSet) -> None:
    before = dict(mpl.rcParams)
    generator = figures(select(pulled))
    next(generator)
    assert dict(mpl.rcParams) == before, "also between two figures"
    mpl.rcParams["lines.linewidth"] = before["lines.linewidth"] + 1
    try:
        next(generator)
        assert mpl.rcParams["lines.linewidth"] == before["lines.linewidth"] + 1, "what the user sets in between stays"
    finally:
        mpl.rcParams["lines.linewidth"] = before["lines.linewidth"]
    generator.close()  # type: ignore[attr-defined]
    assert dict(mpl.rcParams) == before


def test_importing_the_plots_changes_no_setting_of_matplotlib() -> None:
    code = (
        "import matplotlib as mpl; mpl.use('svg'); before = dict(mpl.rcParams)\n"
        "import polysweep.analysis.report.html, polysweep.analysis.theory.figures, seaborn\n"
        "assert dict(mpl.rcParams) == before and mpl.get_backend() == 'svg'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
