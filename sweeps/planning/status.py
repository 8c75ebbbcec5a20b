"""Where a launched sweep stands."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from polysweep.sweeps.planning.estimate import estimate
from polysweep.sweeps.planning.stacks import stacks_of
from polysweep.sweeps.planning.target import is_target_reached
from polysweep.sweeps.spec.sweep import RecordedMetric, Sweep, SweepTrial, by_cell
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.launches import launches
from polysweep.sweeps.store.states import State, counts_of
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import is_stalled

NEVER_STALLED: Final = ("constant", "cosine")
"""Schedulers without a safeguard: of a record older than this note no history has to be read."""


def status_of(sweep: Sweep, store: Store) -> dict[str, Any]:
    """The object that `status --json` prints: counts, cells with their best value so far, trials, who runs what.

    `stalled` counts finished trials that gamma = 0 held in place to the end. `best` is the best epoch's value of the
    sweep's metric over the cell's trials that have neither diverged nor failed.
    """
    states, settings, metric = store.states(sweep), sweep.settings, sweep.metric
    pick = max if metric.goal == "maximize" else min
    with_values = [t for t in sweep.trials if states[t.trial_id].state not in (State.NEW, State.DIVERGED, State.FAILED)]
    values, stalled = _values(metric, store, with_values)
    stacks = stacks_of(sweep.trials, states, lambda trial: trial.width or 1)
    proposals = max(0, settings.points - store.search.proposals(sweep.name)) if settings.points else 0
    cells = []
    for members in by_cell(sweep.trials):
        cell_values = [values[trial.trial_id] for trial in members if trial.trial_id in values]
        cells.append(
            {
                "cell": members[0].cell,
                "counts": dict(Counter(states[trial.trial_id].state for trial in members)),
                "best": pick(cell_values) if cell_values else None,
                **({"stalled": held} if (held := sum(trial.trial_id in stalled for trial in members)) else {}),
            }
        )
    return {
        "sweep": sweep.name,
        "metric": metric.name,
        "selected_on": metric.name.partition("/")[0],
        "counts": counts_of(sweep.trials, states),
        "stalled": len(stalled),
        "gone": len(sweep.gone),
        "proposals_left": proposals,
        "over": is_target_reached(metric, store, states)
        or (settings.method == "bayes" and store.search.is_exhausted(sweep.name)),
        "launches": [str(owner) for owner in launches(store, sweep.name).values()],
        "estimate": estimate(stacks, states, settings.launch, store, proposals=proposals).as_json(),
        "cells": cells,
        "trials": [
            {
                "trial_id": t.trial_id,
                "outcome": states[t.trial_id].state,
                "epoch": states[t.trial_id].epoch,
                **({"stalled": True} if t.trial_id in stalled else {}),
                **({"damage": states[t.trial_id].damage} if states[t.trial_id].damage else {}),
                **({"holder": states[t.trial_id].holder} if states[t.trial_id].holder else {}),
            }
            for t in sweep.trials
        ],
    }


def _values(metric: RecordedMetric, store: Store, trials: list[SweepTrial]) -> tuple[dict[str, float], set[str]]:
    """The best value of each trial so far, and which are stalled; from its history if an older version recorded it."""
    at = int(metric.goal == "maximize")
    schedulers = {trial.trial_id: trial.value("scheduler") for trial in trials}
    best: dict[str, float] = {}
    stalled: set[str] = set()
    for trial_id, record in store.records(trial.trial_id for trial in trials):
        if isinstance(record, StoreError):
            continue
        if "extremes" in record:
            values = record["extremes"].get(metric.name, [])
        else:
            rows = [row.get(metric.name) for row in _history(store, trial_id)]
            measured = [value for value in rows if value is not None]
            values = [min(measured), max(measured)] if measured else []
        if values:
            best[trial_id] = float(values[at])
        may_stall = "stalled" not in record and schedulers[trial_id] not in NEVER_STALLED
        if record["outcome"] == State.FINISHED and (
            record.get("stalled") or (may_stall and is_stalled(_history(store, trial_id)))
        ):
            stalled.add(trial_id)
    return best, stalled


def _history(store: Store, trial_id: str) -> list[dict[str, Any]]:
    """A trial's history; empty if it is damaged, which `logs` and `table` report."""
    try:
        return store.history(trial_id)
    except StoreError:
        return []
