"""Accuracy against curvature: the points, the correlation, and the table beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.curvature_plots import correlation_text, curvature_figure, plot_curvature
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.curvature import curvature_means, curvature_runs, curvature_table
from polysweep.analysis.tables.writers import markdown
from tests.support.made import by_lr, sweep


def measured(folder: Path) -> RunSet:
    """Runs whose largest eigenvalue is 10 (1 - accuracy) at the last epoch, and their trace 100 times that."""
    pulled = sweep(folder, by_lr)
    eigenvalue = 10 * (1 - pulled.runs["last/test/top1"].astype(float))
    columns = {"curvature/eigenvalue-1": eigenvalue, "curvature/eigenvalue-2": eigenvalue / 2,
               "curvature/trace": 100 * eigenvalue, "curvature/trace_se": eigenvalue}  # fmt: skip
    runs = pulled.runs.assign(**{f"last/{name}": values for name, values in columns.items()})
    return replace(pulled, runs=runs, protocol=replace(pulled.protocol, probed=dict.fromkeys(columns, "last")))


def test_every_chosen_run_is_a_point_of_its_last_epoch(tmp_path: Path) -> None:
    metric, runs = curvature_runs(select(measured(tmp_path)))
    assert metric == "test/top1" and len(runs) == 12, "two radii, two schedulers, three seeds"
    assert (runs["curvature/eigenvalue-1"] - 10 * (1 - runs["test/top1"])).abs().max() < 1e-12
    ax = plot_curvature(runs, "curvature/eigenvalue-1", metric)
    assert sum(len(points.get_offsets()) for points in ax.collections) == 12  # type: ignore[arg-type]
    assert ax.get_title() == "Hessian eigenvalue 1\nrank corr. -1.00, p < 0.0001, n = 12"


def test_a_correlation_of_few_or_equal_values_is_not_printed() -> None:
    assert correlation_text(pd.Series([1.0, 2.0, 3.0]), pd.Series([1.0, 2.0, 3.0])) == "n = 3"
    assert correlation_text(pd.Series([1.0] * 9), pd.Series(range(9))) == "n = 9"


def test_the_figure_has_a_panel_per_measure_and_only_the_largest_eigenvalue(tmp_path: Path) -> None:
    selection = select(measured(tmp_path), metric="curvature/trace")
    figure = curvature_figure(selection, 6.75)
    assert figure is not None
    titles = [ax.get_title().partition("\n")[0] for ax in figure.figure.axes if ax.get_visible()]
    assert titles == ["Hessian eigenvalue 1", "trace of the Hessian"]
    names = [one.name for one in figures(selection)]
    assert "curvature" in names and "curves" not in names, "what a probe measures has no history"
    assert curvature_figure(select(sweep(tmp_path / "none", by_lr)), 6.75) is None


def test_the_table_has_a_row_per_cell_with_its_n(tmp_path: Path) -> None:
    selection = select(measured(tmp_path))
    means = curvature_means(selection)
    assert len(means) == 8 and set(means["n"]) == {3}
    first = means[(means["scheduler"] == "polyak") & (means["rho"] == 0.1) & (means["measure"] == "curvature/trace")]
    assert first["mean"].item() == pytest.approx(100 * 10 * (1 - 0.90)) and first["std"].item() == pytest.approx(10)
    table = curvature_table(selection)
    assert table is not None and "| 0.1 | polyak    | 1.0000 +- 0.1000     | 100.0000 +- 10.0000" in markdown(table)
    assert curvature_table(select(sweep(tmp_path / "none", by_lr))) is None
    assert "<caption>curvature</caption>" in render_report(selection)
