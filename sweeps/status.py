"""Where a launched sweep stands."""

from __future__ import annotations

from collections import Counter
from typing import Any

from sweeps.decisions import is_target_reached
from sweeps.estimate import estimate
from sweeps.expand import SweepTrial
from sweeps.files import StoreError
from sweeps.plan import plan
from sweeps.running import launches
from sweeps.spec import SweepSpec
from sweeps.store import Store


def status_of(spec: SweepSpec, store: Store) -> dict[str, Any]:
    """The object that `status --json` prints: counts, cells with their best value so far, trials, who runs what.

    `best` is the best epoch's value of the sweep's metric over the cell's trials that have neither diverged nor failed.
    """
    made = plan(spec, store.states(spec))
    pick = max if spec.metric.goal == "maximize" else min
    values = _values(spec, store, [t for t in made.trials if made.state(t) not in ("new", "diverged", "failed")])
    cells = []
    for members in made.members:
        found = [values[trial.trial_id] for trial in members if trial.trial_id in values]
        cells.append(
            {
                "cell": members[0].cell,
                "counts": dict(Counter(made.state(trial) for trial in members)),
                "best": pick(found) if found else None,
            }
        )
    return {
        "sweep": spec.name,
        "metric": spec.metric.name,
        "selected_on": spec.metric.name.partition("/")[0],
        "counts": made.counts(),
        "gone": sum(bool(trial.get("gone")) for trial in store.listed(spec.name)),
        "proposals_left": made.proposals_left,
        "over": is_target_reached(spec, store, made.states)
        or (spec.method == "bayes" and store.is_exhausted(spec.name)),
        "launches": [str(holder) for holder in launches(store, spec.name).values()],
        "estimate": estimate(made, store).as_json(),
        "cells": cells,
        "trials": [
            {
                "trial_id": t.trial_id,
                "outcome": made.state(t),
                "epoch": made.states[t.trial_id].epoch,
                **({"holder": made.states[t.trial_id].holder} if made.states[t.trial_id].holder else {}),
            }
            for t in made.trials
        ],
    }


def _values(spec: SweepSpec, store: Store, trials: list[SweepTrial]) -> dict[str, float]:
    """The best value of each trial so far; from its history where an older version wrote the record."""
    at = int(spec.metric.goal == "maximize")
    found = {}
    for trial_id, record in store.records(trial.trial_id for trial in trials):
        if isinstance(record, StoreError):
            continue
        if "extremes" in record:
            values = record["extremes"].get(spec.metric.name, [])
        else:
            rows = [row.get(spec.metric.name) for row in store.history(trial_id)]
            measured = [value for value in rows if value is not None]
            values = [min(measured), max(measured)] if measured else []
        if values:
            found[trial_id] = float(values[at])
    return found
