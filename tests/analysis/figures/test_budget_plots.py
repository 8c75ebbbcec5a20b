"""The plot of budget curves: what stands in it, for a grid and for a search."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from polysweep.analysis.figures.budget_plots import plot_budget
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.tables.budget import budget_curves
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.selection import Selection
from polysweep.trainer.errors import UserError
from tests.support.made import by_lr, sweep
from tests.support.made_searches import searched as searched


def test_a_grid_has_a_panel_per_radius_and_a_line_per_scheduler_in_percent(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr))
    (one,) = [figure for figure in figures(selection) if figure.name == "budget"]
    titles = [ax.get_title() for ax in one.figure.axes]
    assert titles == [r"$\rho$ = 0.1", r"$\rho$ = 0.4"]
    for rho, ax in zip((0.1, 0.4), one.figure.axes, strict=True):
        rows = one.data[(one.data["rho"] == rho) & (one.data["scheduler"] == "constant")]
        (line,) = [line for line in ax.lines if line.get_label() == "constant"]
        assert line.get_xydata().tolist() == [[k, 100 * v] for k, v in zip(rows["k"], rows["expected"], strict=True)]
    title = one.figure.get_suptitle().replace("\N{NO-BREAK SPACE}", " ")
    assert title == "made: best of k candidates, up to 3, best epoch, n = 3, selected on test"
    pd.testing.assert_frame_equal(one.data, budget_curves(selection))


def test_a_search_has_one_line_per_method(searched: Selection) -> None:
    (one,) = [figure for figure in figures(searched) if figure.name == "budget"]
    (ax,) = one.figure.axes
    assert {line.get_label() for line in ax.lines} == {"sam, constant", "usam, constant", "sam, polyak", "usam, polyak"}
    assert "without all results are left out" in one.caption


def test_a_sweep_with_one_candidate_per_cell_or_without_results_has_no_such_figure(tmp_path: Path) -> None:
    one_each = select(sweep(tmp_path, by_lr, tuned=[], variants=[{"scheduler": {"value": "polyak"}}]))
    assert "budget" not in [figure.name for figure in figures(one_each)]
    several = budget_curves(select(sweep(tmp_path / "several", by_lr)))
    with pytest.raises(UserError, match="plot_budget: 2 rows share scheduler=constant k=1; they differ in rho"):
        plot_budget(several, "test/top1", Figure().subplots())
    nothing = plot_budget(budget_curves(one_each)[:0], "test/top1", Figure().subplots())
    assert [text.get_text() for text in nothing.texts] == ["no method with all results"]
