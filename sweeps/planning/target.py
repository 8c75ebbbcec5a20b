"""Whether a sweep has reached the target of its metric, after which no trial is started."""

from __future__ import annotations

from collections.abc import Mapping

from polysweep.sweeps.spec.sweep import Selector
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.states import TrialState
from polysweep.sweeps.store.store import Store


def is_target_reached(metric: Selector, store: Store, states: Mapping[str, TrialState]) -> bool:
    """Whether some trial has reached the metric's target."""
    if metric.target is None:
        return False
    there = [trial_id for trial_id, state in states.items() if state.epoch]
    values = [
        record.get("extremes", {}).get(metric.name, [None, None])[metric.goal == "maximize"]
        for _, record in store.records(there)
        if not isinstance(record, StoreError)
    ]
    return any(map(metric.is_reached, values))
