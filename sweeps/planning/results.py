"""What trials have scored, read from their histories by the same rule as the tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pyarrow as pa

from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.store import Store


def values_of(
    store: Store, trial_ids: Iterable[str], metric: str, *, by: str, is_maximal: bool, is_last: bool = False
) -> dict[str, float]:
    """By trial its `metric` at the first of the best epochs by `by`, or at the last epoch.

    A trial without a number there, or whose history is damaged, is left out.
    """
    values = {}
    for trial_id, history in store.histories(trial_ids):
        if not isinstance(history, StoreError):
            value = _value(history, metric, by, is_maximal=is_maximal, is_last=is_last)
            if value is not None and not math.isnan(value):
                values[trial_id] = value
    return values


def _value(history: pa.Table, metric: str, by: str, *, is_maximal: bool, is_last: bool) -> float | None:
    if metric not in history.column_names or by not in history.column_names:
        return None
    at = history.num_rows - 1 if is_last else best_epoch(history[by].to_pylist(), is_maximal=is_maximal)
    there = [] if at is None else [value for value in history[metric].slice(0, at + 1).to_pylist() if value is not None]
    return float(there[-1]) if there else None


def best_epoch(values: Sequence[float | None], *, is_maximal: bool) -> int | None:
    """The place of the first of the best finite values; None if there is none."""
    sign = 1 if is_maximal else -1
    finite = [(sign * value, -at) for at, value in enumerate(values) if value is not None and math.isfinite(value)]
    return -max(finite)[1] if finite else None
