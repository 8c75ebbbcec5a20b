"""The plots of a search as they are called from Python."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from polysweep.analysis.figures.search_plots import plot_best_so_far, plot_importance, plot_pair, plot_parameter
from polysweep.analysis.tables.importance import importance
from polysweep.analysis.tables.leaderboard import leaderboard
from polysweep.analysis.tables.selection import Selection
from tests.support.made_searches import board_of


def test_points_stand_at_the_numbers_of_the_table_and_lost_ones_at_the_foot(searched: Selection) -> None:
    points = leaderboard(searched).points
    ax = plot_parameter(points, "rho", "test/top1", Figure().subplots(), is_log=True)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert {"best", "diverged", "stopped", "lacks a result"} <= set(lines) and ax.get_xscale() == "log"
    best = points.iloc[0]
    assert [*lines["best"].get_xdata(), *lines["best"].get_ydata()] == pytest.approx([best["rho"], 100 * best["mean"]])
    assert set(lines["diverged"].get_ydata()) == {0.02}
    words = plot_parameter(points, "optimizer", "test/top1", Figure().subplots())
    assert [label.get_text() for label in words.get_xticklabels()] == ["sam", "usam"]
    assert plot_parameter(points.iloc[:0], "rho", "test/top1", Figure().subplots()).texts


def test_the_best_so_far_never_gets_worse_and_follows_the_order_of_the_sweep() -> None:
    points = board_of(np.array([0.5, 0.4, 0.8, 0.7]), lr=[1.0, 2.0, 3.0, 4.0]).points
    (line,) = [line for line in plot_best_so_far(points, "acc").get_lines() if line.get_label() == "best so far"]
    assert line.get_ydata().tolist() == [0.5, 0.5, 0.8, 0.8]
    (line,) = plot_best_so_far(points, "acc", Figure().subplots(), is_maximal=False).get_lines()[1:]
    assert line.get_ydata().tolist() == [0.5, 0.4, 0.4, 0.4]


def test_importance_is_drawn_or_says_why_not() -> None:
    lr, other = np.arange(20.0) + 1, np.random.default_rng(0).random(20)
    board = board_of(lr, lr=lr, other=other)
    ax = plot_importance(importance(board), Figure().subplots())
    assert [label.get_text() for label in ax.get_yticklabels()] == ["lr", "other"]
    assert plot_importance(importance(board_of(np.arange(3.0), lr=np.arange(3.0))), Figure().subplots()).texts
    pair = plot_pair(board.points, "lr", "other", "acc", Figure().subplots(), logs=(True, None))
    assert pair.get_xscale() == "log" and len(pair.collections[0].get_offsets()) == 20
