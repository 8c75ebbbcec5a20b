"""Budget curves: how good the best of k of the candidates that were tried is. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from polysweep.analysis.data.frames import names_of
from polysweep.analysis.tables.leaderboard import Leaderboard, leaderboard
from polysweep.analysis.tables.selection import Selection, format_value
from polysweep.trainer.errors import UserError, expected

BAND: Final = (0.05, 0.95)
"""The quantiles of the band: nine draws of candidates in ten are in it."""
COLUMNS: Final = ("candidates", "left_out", "n", "k", "expected", "low", "high", "without_result", "area")


def budget_curves(selection: Selection, by: str | Sequence[str] | None = None) -> pd.DataFrame:
    """The expected best of k candidates, k = 1, ..., N: whether a method is better, or was only tuned more.

    Of the N candidates of a method k are drawn without replacement; the one of them that selection ranks first is
    reported. With their reported means v_1, ..., v_N from the best rank to the last,

        expected(k) = sum_j v_j C(N - j, k - 1) / C(N, k)

    (Tang et al. 2020, "Showing your work doesn't always work"; unbiased if candidates were drawn independently, as in a
    random search: those of a grid were listed by hand, and those of bayes depend on earlier ones). `low` and
    `high` are the 5 % and 95 % quantiles over the draws; `without_result` is the share of draws in which no candidate
    has a finished seed, and if it is not 0, there is no `expected`. `area` is the mean of `expected` over 1, ..., k,
    that is over all budgets up to k (NaN if one of them has none); how far it is from `expected` at k says how much
    tuning the method needs. `n` is the fewest seeds behind a candidate's mean, `left_out` how many candidates lack a
    result.

    `by`: the fields that tell methods apart; by default those of a cell, and in a search without tuned parameters
    those whose values are words. A method with a candidate that lacks a result has no curve, except in a search, where
    the curve is of the others. Raises `UserError` for an unknown field.
    """
    board = leaderboard(selection)
    is_search = selection.pulled.protocol.is_search
    fields = _require(names_of(by), board.parameters) or _methods(selection, board)
    rows: list[dict[str, Any]] = []
    for points in _by_method(board, fields):
        ranked = [point for point in points if pd.notna(point["rank"])]
        left_out = len(points) - len(ranked)
        if ranked and (is_search or not left_out):
            method = {name: points[0][name] for name in fields}
            facts = {
                "candidates": len(ranked),
                "left_out": left_out,
                "n": min([point["n"] for point in ranked if point["n"]], default=0),
            }
            rows += [{**method, **facts, **row} for row in _curve([float(point["mean"]) for point in ranked])]
    return pd.DataFrame(rows, columns=[*fields, *COLUMNS])


def _require(fields: Sequence[str], parameters: Sequence[str]) -> list[str]:
    """The fields. Raises `UserError` for one that does not vary."""
    for name in fields:
        if name not in parameters:
            raise UserError(f"budget curves: {name!r} does not vary; {expected(name, parameters)}")
    return list(fields)


def _methods(selection: Selection, board: Leaderboard) -> list[str]:
    """The fields that tell methods apart if none are asked for."""
    protocol = selection.pulled.protocol
    if not protocol.is_search:
        return list(protocol.cell)
    return [name for name in board.parameters if all(isinstance(value, str) for value in board.points[name])]


def _by_method(board: Leaderboard, fields: Sequence[str]) -> list[list[Mapping[Any, Any]]]:
    """The points of each method, the best first; methods in the order of the sweep."""
    methods: dict[tuple[str, ...], list[Mapping[Any, Any]]] = {}
    points = board.points.to_dict("records")
    for point in sorted(points, key=lambda point: int(point["point"])):
        methods.setdefault(tuple(format_value(point[name]) for name in fields), [])
    for point in points:
        methods[tuple(format_value(point[name]) for name in fields)].append(point)
    return list(methods.values())


def _curve(values: Sequence[float]) -> list[dict[str, Any]]:
    """The rows of one method, from the reported means of its candidates, the best rank first; NaN: no finished seed."""
    means, total = np.array(values), len(values)
    order, has_none = np.argsort(means), np.isnan(means)
    expectations, rows = list[float](), []
    for k in range(1, total + 1):
        # P(the best is number j) = C(N - j, k - 1) / C(N, k), by the ratio of each to the one before.
        ratios = np.maximum(total - k - np.arange(total - 1), 0) / (total - 1 - np.arange(total - 1))
        shares = k / total * np.cumprod([1.0, *ratios])
        without = float(shares[has_none].sum())
        expected, low, high = math.nan, math.nan, math.nan
        if not without:
            expected = float(shares @ np.where(has_none, 0.0, means))
            reached = np.cumsum(shares[order])
            low, high = (float(means[order[np.searchsorted(reached, at - 1e-9)]]) for at in BAND)
        expectations.append(expected)
        area = math.fsum(expectations) / k
        rows.append({"k": k, "expected": expected, "low": low, "high": high, "without_result": without, "area": area})
    return rows
