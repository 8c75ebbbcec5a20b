"""Where a launched sweep stands."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sweeps.plan import plan
from sweeps.spec import SweepSpec, SweepTrial
from sweeps.store import Store


def status_of(spec: SweepSpec, store: Store) -> dict[str, Any]:
    """The object that `status --json` prints: counts, cells with their best value so far, trials.

    `best` is the best epoch's value of the sweep's metric over the cell's trials that have not diverged.
    """
    made = plan(spec, store.states(spec))
    cells = []
    for cell in made.cells():
        members = [trial for trial in made.trials if dict(trial.cell) == cell]
        values = [value for trial in members for value in _values(spec, store, made.state(trial), trial)]
        pick = max if spec.metric.goal == "maximize" else min
        cells.append(
            {
                "cell": cell,
                "counts": dict(Counter(made.state(trial) for trial in members)),
                "best": pick(values) if values else None,
            }
        )
    return {
        "sweep": spec.name,
        "metric": spec.metric.name,
        "selected_on": spec.metric.name.partition("/")[0],
        "counts": made.counts(),
        "cells": cells,
        "trials": [
            {"trial_id": t.trial_id, "outcome": made.state(t), "epoch": made.states[t.trial_id].epoch}
            for t in made.trials
        ],
    }


def _values(spec: SweepSpec, store: Store, state: str, trial: SweepTrial) -> list[float]:
    if state in ("new", "diverged", "failed"):
        return []
    values = [row.get(spec.metric.name) for row in store.history(trial.trial_id)]
    return [value for value in values if value is not None]
