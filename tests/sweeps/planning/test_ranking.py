"""The rank of candidates, and which could still win."""

from __future__ import annotations

import math
import statistics
from typing import Any

from polysweep.sweeps.planning.ranking import best_possible, rank_of, that_could_win


def candidate(scores: list[float], lacking: int = 0, lost: int = 0) -> dict[str, Any]:
    """A candidate with these scores, seeds without a result, and seeds lost."""
    return {"scores": scores, "lacking": lacking, "lost": lost, "score": statistics.fmean(scores)}


def test_a_seed_without_a_result_could_win_only_if_its_best_value_would() -> None:
    winner = candidate([0.9, 0.9])
    close, far, fallen = candidate([0.85], lacking=1), candidate([0.7], lacking=1), candidate([1.0], lacking=1, lost=1)
    rows = [far, winner, close, fallen]
    assert that_could_win(rows, winner, best_possible("test/top1", True), True) == [close], "(0.85 + 1) / 2 > 0.9"
    equal = candidate([0.8], lacking=1)
    assert that_could_win([winner, equal], winner, 1.0, True) == [], "the spec breaks the tie for the first"
    assert that_could_win([equal, winner], winner, 1.0, True) == [equal]


def test_the_best_value_that_a_run_could_have_is_that_of_its_metric() -> None:
    assert best_possible("test/top1", True) == 1 and best_possible("test/loss", False) == 0
    assert best_possible("reward", True) == math.inf and best_possible("regret", False) == -math.inf


def test_candidates_rank_by_results_then_by_seeds_lost_then_by_the_mean() -> None:
    best, worse, lost, lacking = candidate([0.5]), candidate([0.4]), candidate([0.9], lost=1), candidate([1.0], 1)
    rows = [lacking, lost, worse, best]
    assert sorted(rows, key=lambda row: rank_of(row, True)) == [best, worse, lost, lacking]
    assert sorted(rows, key=lambda row: rank_of(row, False)) == [worse, best, lost, lacking]
