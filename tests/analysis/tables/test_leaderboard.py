"""Leaderboards: the order of the points, their states, and parameters at readable precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.leaderboard import leaderboard, readable
from polysweep.analysis.tables.selection import Selection
from tests.support.made import by_lr, sweep
from tests.support.made_searches import board_of


def test_points_rank_by_lost_seeds_then_mean_and_one_that_lacks_a_result_has_no_rank(searched: Selection) -> None:
    board = leaderboard(searched)
    points = board.points
    assert len(points) == 30 and sorted(points["point"]) == list(range(1, 31))
    whole = points[points["n"] == 2]
    assert whole["rank"].tolist() == list(range(1, len(whole) + 1)) and (whole["state"] == "finished").all()
    assert whole["mean"].is_monotonic_decreasing
    lost = points[points["rank"].notna() & (points["n"] == 0)]
    assert len(lost) and set(lost["rank"]) == {len(whole) + 1}, "equal points share a rank"
    assert set(lost["state"]) == {"1 stopped at epoch 3, 1 diverged"}
    lacking = points[points["rank"].isna()]
    assert set(lacking["state"]) == {"1 finished, 1 failed"} and (lacking["mean"] == 0.99).all()
    assert points.index[-len(lacking) :].tolist() == lacking.index.tolist(), "behind all others, whatever their mean"
    assert all(len(ids.split()) == 2 for ids in points["trial_ids"])
    assert "30 points" in repr(board) and "<table" in board._repr_html_()


def test_a_grid_has_a_leaderboard_of_all_candidates(tmp_path: Path) -> None:
    board = leaderboard(select(sweep(tmp_path, by_lr)))
    assert board.parameters == ["rho", "scheduler", "lr"] and len(board.points) == 8
    assert board.points.iloc[0][["rho", "scheduler"]].tolist() == [0.1, "polyak"]


def test_equal_points_share_a_rank_and_the_next_counts_them() -> None:
    board = board_of(np.array([0.5, 0.9, 0.9, 0.7]), lr=[1.0, 2.0, 3.0, 4.0])
    assert board.points["rank"].tolist() == [1, 1, 3, 4] and board.points["lr"].tolist() == [2.0, 3.0, 4.0, 1.0]


def test_parameters_are_readable_and_different_points_stay_different() -> None:
    points = [
        {"lr": 0.012345678, "hidden": 123456, "act": "relu"},
        {"lr": 0.012345699, "hidden": 123456, "act": "relu"},
        {"lr": 0.0123, "hidden": 7, "act": "[1, 2]"},
        {"lr": 1234.5678, "hidden": pd.NA, "act": None},
    ]
    texts = readable(points, ["lr", "hidden", "act"])
    assert texts[0] == ["0.01234568", "123456", "relu"] and texts[1] == ["0.0123457", "123456", "relu"]
    assert texts[2] == ["0.0123", "7", "[1, 2]"] and texts[3] == ["1235", "-", "-"]
    assert readable([], ["lr"]) == []
