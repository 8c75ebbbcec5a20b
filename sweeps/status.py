"""Where a launched sweep stands."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from sweeps.decisions import is_target_reached
from sweeps.estimate import estimate
from sweeps.expand import SweepTrial
from sweeps.files import StoreError
from sweeps.plan import plan
from sweeps.running import launches
from sweeps.spec import SweepSpec
from sweeps.store import Store
from trainer.history import is_stalled

NEVER_STALLED: Final = ("constant", "cosine")
"""Schedulers without a safeguard: of a record older than this note no history has to be read."""


def status_of(spec: SweepSpec, store: Store) -> dict[str, Any]:
    """The object that `status --json` prints: counts, cells with their best value so far, trials, who runs what.

    `stalled` counts finished trials that gamma = 0 held in place to the end. `best` is the best epoch's value of the
    sweep's metric over the cell's trials that have neither diverged nor failed.
    """
    made = plan(spec, store.states(spec))
    pick = max if spec.metric.goal == "maximize" else min
    values, stalled = _values(
        spec, store, [t for t in made.trials if made.state(t) not in ("new", "diverged", "failed")]
    )
    cells = []
    for members in made.members:
        found = [values[trial.trial_id] for trial in members if trial.trial_id in values]
        cells.append(
            {
                "cell": members[0].cell,
                "counts": dict(Counter(made.state(trial) for trial in members)),
                "best": pick(found) if found else None,
                **({"stalled": held} if (held := sum(trial.trial_id in stalled for trial in members)) else {}),
            }
        )
    return {
        "sweep": spec.name,
        "metric": spec.metric.name,
        "selected_on": spec.metric.name.partition("/")[0],
        "counts": made.counts(),
        "stalled": len(stalled),
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
                **({"stalled": True} if t.trial_id in stalled else {}),
                **({"damage": made.states[t.trial_id].damage} if made.states[t.trial_id].damage else {}),
                **({"holder": made.states[t.trial_id].holder} if made.states[t.trial_id].holder else {}),
            }
            for t in made.trials
        ],
    }


def _values(spec: SweepSpec, store: Store, trials: list[SweepTrial]) -> tuple[dict[str, float], set[str]]:
    """The best value of each trial so far, and which are stalled; from its history if an older version recorded it."""
    at = int(spec.metric.goal == "maximize")
    schedulers = {trial.trial_id: trial.value("scheduler") for trial in trials}
    found: dict[str, float] = {}
    stalled: set[str] = set()
    for trial_id, record in store.records(trial.trial_id for trial in trials):
        if isinstance(record, StoreError):
            continue
        if "extremes" in record:
            values = record["extremes"].get(spec.metric.name, [])
        else:
            rows = [row.get(spec.metric.name) for row in _history(store, trial_id)]
            measured = [value for value in rows if value is not None]
            values = [min(measured), max(measured)] if measured else []
        if values:
            found[trial_id] = float(values[at])
        may_stall = "stalled" not in record and schedulers[trial_id] not in NEVER_STALLED
        if record["outcome"] == "finished" and (
            record.get("stalled") or (may_stall and is_stalled(_history(store, trial_id)))
        ):
            stalled.add(trial_id)
    return found, stalled


def _history(store: Store, trial_id: str) -> list[dict[str, Any]]:
    """A trial's history; empty where it is damaged: `logs` and `table` say so."""
    try:
        return store.history(trial_id)
    except StoreError:
        return []
