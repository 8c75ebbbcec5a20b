"""The figures of a search, in files and in the report."""

from __future__ import annotations

from pathlib import Path

from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.report.html import render_report
from polysweep.analysis.report.wandb_dashboard import definition, workspace
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.selection import Selection
from tests.support.made import sweep
from tests.support.made_searches import SEARCH


def test_a_search_has_figures_of_its_points_and_a_report_with_its_leaderboard(searched: Selection) -> None:
    selection = searched
    drawn = {one.name: one for one in figures(selection)}
    *first, pair = drawn
    assert first == ["parameters", "best-so-far", "budget", "importance"] and pair.startswith("pair-")
    assert [ax.get_xscale() for ax in drawn["parameters"].figure.axes if "rho" in ax.get_title()] == ["log"]
    assert all("points" in one.caption or one.name == "budget" for one in drawn.values())
    assert all(len(one.data) for one in drawn.values())
    for one in drawn.values():
        one.figure.draw_without_rendering()
    page = render_report(selection)
    assert '<h2 id="tables">Leaderboard</h2>' in page and "which parameters mattered" in page
    assert page.count("data:image/svg+xml;base64,") == len(drawn) and "1 stopped at epoch 3, 1 diverged" in page
    view = definition(workspace(selection.pulled, "lab", "p"))
    assert "Parameter Importance" in str(view)


def test_a_search_without_results_draws_or_says_why_not(tmp_path: Path) -> None:
    for outcome in ("diverged", "new"):
        selection = select(sweep(tmp_path / outcome, lambda _, word=outcome: word, **{**SEARCH, "run_cap": 24}))  # type: ignore[misc]
        for one in figures(selection, width="column"):
            one.figure.draw_without_rendering()
            assert any(ax.texts or ax.has_data() for ax in one.figure.axes), one.name
