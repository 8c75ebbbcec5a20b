"""The leaderboard as it is printed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import FORMATS, render
from polysweep.analysis.tables.layout import Layout
from polysweep.analysis.tables.leaderboard_table import best_against_others, search_table
from polysweep.analysis.tables.selection import Selection
from tests.support.made import by_lr, sweep
from tests.support.made_searches import board_of, search


def test_a_search_is_a_leaderboard_in_every_format(searched: Selection) -> None:
    selection = searched
    text = render(selection, "markdown")
    lines = text.splitlines()
    assert lines[2].split("|")[1].strip() == "rank" and "ranked by test/top1 (maximize)" in lines[0]
    assert len([line for line in lines if line.startswith("| ")]) == 21 and "... and 10 more: --all" in lines
    assert (
        "which parameters mattered for test/top1, n = " in text
        and "  momentum: " in text
        and "without rank" in text
        and "lr: " in text
    )
    assert len([line for line in render(selection, "markdown", all_points=True).splitlines() if line[:2] == "| "]) == 31
    assert all(render(selection, name) for name in FORMATS)
    assert "[" in str(search_table(selection, 1, intervals=True).rows[0][1])


def test_the_csv_has_all_points_with_full_precision(searched: Selection) -> None:
    selection = searched
    numbers = pd.read_csv(io.StringIO(render(selection, "csv")))
    assert len(numbers) == 30 and numbers["rank"].iloc[0] == 1 and numbers["rank"].isna().any()
    assert set(numbers["momentum"]) == set(selection.pulled.runs["momentum"])
    assert {"n", "diverged", "missing", "state", "trial_ids", "test_accuracy_mean"} <= set(numbers.columns)


def test_layouts_tuned_searches_and_grids_have_the_tables_they_had(searched: Selection, tmp_path: Path) -> None:
    selection = searched
    assert "| rho " in render(selection, "markdown", Layout.of(selection, ["rho"], ["scheduler"]))
    tuned = select(search(tmp_path / "tuned", tuned=["rho", "momentum", "lr"]))
    grid = select(sweep(tmp_path / "grid", by_lr))
    for one in (tuned, grid):
        assert not one.pulled.protocol.is_search and "rank" not in render(one, "markdown").partition("\n\n")[2][:6]


def test_the_best_is_told_only_from_points_that_differ_beyond_chance(searched: Selection) -> None:
    board = board_of(np.array([0.9, 0.5]), lr=[1.0, 2.0])
    verdict = best_against_others(board)
    assert verdict is not None and not verdict.marked and "n = 1" in verdict.text([], "acc")
    selection = searched
    assert "bold" in "\n".join(search_table(selection).notes)
