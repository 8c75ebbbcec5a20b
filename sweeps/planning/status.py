"""Where a launched sweep stands."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Final

from polysweep.sweeps.planning.decision_lines import decision_lines
from polysweep.sweeps.planning.estimate import estimate
from polysweep.sweeps.planning.stacks import StackPlan, stacks_of
from polysweep.sweeps.planning.target import is_target_reached
from polysweep.sweeps.spec.sweep import RecordedMetric, Sweep, SweepTrial, by_cell, by_point
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.launches import launches
from polysweep.sweeps.store.states import State, TrialState, counts_of
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import is_stalled

NEVER_STALLED: Final = ("constant", "cosine")
"""Schedulers without a safeguard: if a record is older than this note, its history need not be read."""
_WITHOUT_VALUE: Final = (State.NEW, State.DIVERGED, State.FAILED)


def status_of(sweep: Sweep, store: Store, records: dict[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The object that `status --json` prints: counts, cells with their best value so far, trials, who runs what.

    `stalled` counts finished trials that gamma = 0 held in place to the end. `best` is the best epoch's value of the
    sweep's metric over the cell's trials that have neither diverged nor failed. Every record is read once; `records`
    are those of an earlier look, as in `Store.states`.
    """
    records = {} if records is None else records
    states, settings, metric = store.states(sweep, records=records), sweep.settings, sweep.metric
    with_values = [t for t in sweep.trials if states[t.trial_id].state not in _WITHOUT_VALUE]
    best, stalled = _results(metric, store, with_values, records)

    measured = {t.signature: width for t in sweep.trials if (width := states[t.trial_id].width)}

    def width_of(trial: SweepTrial) -> int:
        """K as recorded, else as planned, else as measured by the launch: that of its signature's other trials."""
        planned = trial.width or measured.get(trial.signature)
        return states[trial.trial_id].width or planned or (settings.seeds if settings.by_points else 1)

    stacks = stacks_of(sweep.trials, states, width_of)
    proposals = max(0, settings.points - store.search.proposals(sweep.name)) if settings.points else 0
    return {
        "sweep": sweep.name,
        "metric": metric.name,
        "selected_on": metric.name.partition("/")[0],
        "counts": counts_of(sweep.trials, states),
        "stalled": len(stalled),
        "gone": len(sweep.gone),
        "decisions": _decisions(sweep, store),
        "proposals_left": proposals,
        "over": is_target_reached(metric, store, states)
        or (settings.method == "bayes" and store.search.is_exhausted(sweep.name)),
        "launches": [str(owner) for owner in launches(store, sweep.name).values()],
        "estimate": estimate(
            stacks,
            states,
            settings.launch,
            store,
            records=records,
            proposals=proposals,
            to_propose=_like(sweep, proposals, width_of),
        ).as_json(),
        "cells": [_cell(members, states, best, stalled, metric.goal) for members in by_cell(sweep.trials)],
        "trials": [_trial(t.trial_id, states[t.trial_id], t.trial_id in stalled) for t in sweep.trials],
    }


def _decisions(sweep: Sweep, store: Store) -> list[str]:
    """What its results have decided, in words."""
    if sweep.settings.protocol is None and sweep.settings.replicate is None:
        return []
    return decision_lines(sweep.settings, store.search.decisions(sweep.name), sweep.trials)


def _like(sweep: Sweep, proposals: int, width_of: Callable[[SweepTrial], int]) -> list[StackPlan]:
    """Stand-ins for the stacks of points that are still to be proposed: like those that have been, in turn."""
    points = [stacks_of(seeds, defaultdict(TrialState), width_of) for seeds in by_point(sweep.trials)]
    return [stack for point in islice(cycle(points), proposals) for stack in point]


def _cell(
    members: Sequence[SweepTrial],
    states: Mapping[str, TrialState],
    best: Mapping[str, float],
    stalled: set[str],
    goal: str,
) -> dict[str, Any]:
    """A cell with the best of its trials' best values, and how many of its trials are stalled, if any are."""
    trial_ids = [trial.trial_id for trial in members]
    values = [best[trial_id] for trial_id in trial_ids if trial_id in best]
    pick = max if goal == "maximize" else min
    cell = {
        "cell": members[0].cell,
        "counts": dict(Counter(states[trial_id].state for trial_id in trial_ids)),
        "best": pick(values) if values else None,
    }
    number = len(stalled.intersection(trial_ids))
    return {**cell, "stalled": number} if number else cell


def _trial(trial_id: str, state: TrialState, is_stalled: bool) -> dict[str, Any]:
    """A trial with its notes, if it has any."""
    notes = {"stalled": is_stalled, "damage": state.damage, "holder": state.holder}
    return {
        "trial_id": trial_id,
        "outcome": state.state,
        "epoch": state.epoch,
        **{name: value for name, value in notes.items() if value},
    }


def _results(
    metric: RecordedMetric, store: Store, trials: Sequence[SweepTrial], records: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, float], set[str]]:
    """The best value of each trial so far, and which trials are stalled."""
    schedulers = {trial.trial_id: trial.value("scheduler") for trial in trials}
    best: dict[str, float] = {}
    stalled: set[str] = set()
    for trial_id in schedulers.keys() & records.keys():
        record = records[trial_id]
        if extremes := _extremes(record, metric.name, store, trial_id):
            best[trial_id] = float(extremes[metric.goal == "maximize"])
        if record["outcome"] == State.FINISHED and _is_stalled(record, schedulers[trial_id], store, trial_id):
            stalled.add(trial_id)
    return best, stalled


def _extremes(record: Mapping[str, Any], metric: str, store: Store, trial_id: str) -> Sequence[float]:
    """The smallest and the largest value of a metric; empty if it has none. Of an older record: by its history."""
    if "extremes" in record:
        extremes: Sequence[float] = record["extremes"].get(metric, [])
        return extremes
    values = [row[metric] for row in _history(store, trial_id) if row.get(metric) is not None]
    return [min(values), max(values)] if values else []


def _is_stalled(record: Mapping[str, Any], scheduler: str, store: Store, trial_id: str) -> bool:
    """Whether gamma = 0 held a finished trial in place to the end. Of an older record: by its history."""
    if "stalled" in record:
        return bool(record["stalled"])
    return scheduler not in NEVER_STALLED and is_stalled(_history(store, trial_id))


def _history(store: Store, trial_id: str) -> list[dict[str, Any]]:
    """A trial's history; empty if it is damaged, which `logs` and `table` report."""
    try:
        return store.history(trial_id)
    except StoreError:
        return []
