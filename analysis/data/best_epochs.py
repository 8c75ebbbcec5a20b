"""The best and the last epoch of every run, and what it measured there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from polysweep.analysis.data.frames import SelectionRule
from polysweep.trainer.history import METRICS, last_epochs

UNSCORED: Final = ("new", "diverged", "failed")
"""Outcomes of trials that have neither a best nor a last value."""
AXES: Final = ("epoch", "_step")
"""The columns that order a history: ours, or W&B's own if ours is not logged."""


def scores(history: pa.Table, rows: Sequence[int], outcomes: Sequence[str], protocol: SelectionRule) -> dict[str, Any]:
    """The columns `best_epoch`, `stalled`, `cap_share`, `zero_share`, `best/*` and `last/*` of `runs`.

    `history` holds the rows of the runs one after the other, `rows` of them each. Of several best epochs the first
    counts; a value that is not finite is never the best.
    """
    lengths = np.asarray(rows, dtype=np.int64)
    ends = np.cumsum(lengths)
    has = np.array([outcome not in UNSCORED for outcome in outcomes], dtype=bool) & (lengths > 0)
    best = np.full(len(lengths), -1, dtype=np.int64)
    if protocol.metric in history.column_names and history.num_rows:
        values = np.asarray(history[protocol.metric].cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
        best = first_best(values if protocol.is_maximal else -values, lengths)
    measured = has & (best >= 0)
    starts = ends - lengths
    axis = next((name for name in AXES if name in history.column_names), None)
    columns: dict[str, Any] = {}
    at_best = pa.array(best, mask=~measured)
    columns["best_epoch"] = history[axis].take(at_best) if axis else pa.nulls(len(lengths), pa.int64())
    columns |= _of_step_sizes(history, lengths, has & (np.asarray(outcomes) == "finished"))
    names = [name for name in history.column_names if name not in ("trial_id", "epoch", "partial")]
    ordered = [*(name for name in METRICS if name in names), *(name for name in names if name not in METRICS)]
    is_retrained = protocol.roles is not None and protocol.roles.retrain  # these do not measure what selects
    for which, rows_at, asked in (("best", best, measured), ("last", ends - 1, has if is_retrained else measured)):
        for name in ordered:
            index = last_known(history[name], rows_at, starts, asked)
            columns[f"{which}/{name}"] = history[name].take(index)
    return columns


def _of_step_sizes(history: pa.Table, lengths: np.ndarray, finished: np.ndarray) -> dict[str, pa.Array]:
    """Of the finished runs, whether gamma was 0 in every step of their last epochs; the shares at the cap and at 0."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    from_end = np.cumsum(lengths)[owner] - np.arange(len(owner))
    columns: dict[str, pa.Array] = {}
    for name in ("cap_share", "zero_share"):
        column = f"gamma/{name}"
        values = np.full(len(owner), math.nan)
        if column in history.column_names:
            values = np.asarray(history[column].cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
        measured = ~np.isnan(values)
        rows = np.bincount(owner, measured, minlength=len(lengths))
        sums = np.bincount(owner, np.where(measured, values, 0.0), minlength=len(lengths))
        columns[name] = pa.array(sums / np.maximum(rows, 1), pa.float64(), mask=~finished | (rows == 0))
    moves = (from_end <= np.array([last_epochs(int(n)) for n in lengths], dtype=np.int64)[owner]) & (values != 1.0)
    stalled = np.bincount(owner, moves, minlength=len(lengths)) == 0
    return {"stalled": pa.array(stalled, pa.bool_(), mask=~finished), **columns}


def last_known(column: pa.ChunkedArray, rows: np.ndarray, starts: np.ndarray, asked: np.ndarray) -> pa.Array:
    """By run the row at which a column has a value: `rows`, or the last one before it, of that run; null if none has.

    Metrics that are logged by several calls stand in rows of their own.
    """
    if not column.null_count:
        return pa.array(rows, mask=~asked)
    valid = np.asarray(column.is_valid().to_numpy(), dtype=bool)
    latest = np.maximum.accumulate(np.where(valid, np.arange(len(valid)), -1)) if len(valid) else np.empty(0, np.int64)
    there = np.where(asked, rows, 0)
    positions = latest[there] if len(latest) else np.full(len(rows), -1)
    return pa.array(positions, mask=~asked | (positions < starts))


def first_best(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """By run the row of the first of its largest finite values, -1 without one; (rows,) and (runs,) to (runs,)."""
    best = np.full(len(lengths), -1, dtype=np.int64)
    there = np.flatnonzero(lengths)
    if not len(there):
        return best
    finite = np.where(np.isfinite(values), values, -np.inf)
    starts = np.cumsum(lengths)[there] - lengths[there]
    largest = np.maximum.reduceat(finite, starts)
    of_row = np.repeat(np.arange(len(there)), lengths[there])
    hits = np.flatnonzero((finite == largest[of_row]) & np.isfinite(values))
    runs, first = np.unique(of_row[hits], return_index=True)
    best[there[runs]] = hits[first]
    return best
