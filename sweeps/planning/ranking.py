"""How the candidates of a cell rank, and whether one without all its results could still win. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from polysweep.trainer.history import METRICS, is_accuracy


def best_possible(metric: str, maximal: bool) -> float:
    """The best value that a run could still have: of our own metrics, which are all >= 0, the accuracies <= 1."""
    if metric not in METRICS:
        return math.inf if maximal else -math.inf
    return (1.0 if is_accuracy(metric) else math.inf) if maximal else 0.0


def that_could_win(
    candidates: Sequence[Mapping[str, Any]], winner: Mapping[str, Any], best: float, maximal: bool
) -> list[Mapping[str, Any]]:
    """The candidates, in the order of the spec, that lack a seed and would win if it came out as well as it can."""

    def rank(row: Mapping[str, Any], at: int) -> tuple[int, float, int]:
        total = math.fsum([*row["scores"], *[best] * row["lacking"]])
        mean = total / (len(row["scores"]) + row["lacking"]) if row["scores"] or row["lacking"] else math.nan
        return (*order_of(row["lost"], mean, maximal), at)

    ranks = [rank(row, at) for at, row in enumerate(candidates)]
    if winner["lacking"]:
        return [row for row in candidates if row["lacking"]]
    first = next(at for at, row in enumerate(candidates) if row is winner)
    return [row for at, row in enumerate(candidates) if row["lacking"] and ranks[at] < ranks[first]]


def rank_of(row: Mapping[str, Any], maximal: bool) -> tuple[bool, int, float]:
    """Smaller is better: every seed has a result, fewer seeds lost, then the mean in the direction of the goal."""
    return (row["lacking"] > 0, *order_of(row["lost"], row["score"], maximal))


def order_of(lost: int, mean: float, maximal: bool) -> tuple[int, float]:
    return lost, math.inf if not math.isfinite(mean) else -mean if maximal else mean
