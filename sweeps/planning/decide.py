"""The decisions that a sweep's results allow: the candidate of each cell, then look after look at the comparisons."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from polysweep.sweeps.planning.ranking import best_possible, rank_of, that_could_win
from polysweep.sweeps.planning.results import values_of
from polysweep.sweeps.spec.added_trials import rounds
from polysweep.sweeps.spec.comparisons import Pair, pairs_of
from polysweep.sweeps.spec.decisions import OPEN, Choice, Look, by_key, cell_key
from polysweep.sweeps.spec.replication_checks import fixed_plan, is_larger_better, reported_metric
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import SweepTrial, by_cell, by_point
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.states import FINAL, State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError

if TYPE_CHECKING:
    from polysweep.sweeps.planning.looks import CellResult

_LOST = (State.DIVERGED, State.STOPPED)


def decided(spec: SweepSpec, store: Store, states: Mapping[str, TrialState], *, keep: bool = True) -> SweepSpec:
    """The sweep with the decisions that these states allow, each kept in the Store before; without `keep`, in memory.

    Nothing is decided before all trials have ended, and all points of bayes are proposed. If a decision has added
    trials, their states are to be read before the next one.
    """
    if not spec.decides or not _is_over(spec, store, states):
        return spec
    choices = list(_choices(spec, store, states))
    look = None if choices else _look(spec, store, states)
    due: list[Choice | Look] = [*choices, *([look] if look else [])]
    if not due:
        return spec
    if keep:
        for decision in due:
            store.search.keep_decision(spec.name, decision)
        after = store.search.as_decided(spec)
        if after.decisions == spec.decisions:
            folder = store.files.path(f"sweeps/{spec.name}")
            raise StoreError(f"{folder}: what was decided cannot be kept in choices or looks; restore these folders")
        return after
    before = spec.decisions
    looks = (*before.looks, *([look] if look else []))
    chosen = {**before.choices, **{one.cell: one for one in choices}}
    return spec.with_decisions(replace(before, choices=chosen, looks=looks))


def settled(spec: SweepSpec, store: Store, *, keep: bool) -> tuple[SweepSpec, dict[str, TrialState], dict[str, Any]]:
    """The sweep after all decisions that its results allow, its trials' states, and the records that were read."""
    records: dict[str, Any] = {}
    while True:
        states = store.states(spec, records=records)
        after = decided(spec, store, states, keep=keep)
        if after is spec:
            return spec, states, records
        spec = after


def _is_over(spec: SweepSpec, store: Store, states: Mapping[str, TrialState]) -> bool:
    if any(state.state not in FINAL for state in states.values()):
        return False
    proposed = len(spec.suggestions) >= (spec.points or 0)
    return spec.method != "bayes" or proposed or store.search.is_exhausted(spec.name)


# the candidate of each cell


def _choices(spec: SweepSpec, store: Store, states: Mapping[str, TrialState]) -> Iterator[Choice]:
    """One for each cell without, unless a candidate that lacks a result could still win."""
    if spec.protocol is None:
        return
    cells = {key: members for key, members in by_key(spec.tuning_trials).items() if key not in spec.decisions.choices}
    finished = [t.trial_id for members in cells.values() for t in members if _has_finished(t, states)]
    metric, is_maximal = spec.metric.name, spec.metric.goal == "maximize"
    scores = values_of(store, finished, metric, by=metric, is_maximal=is_maximal)
    for key, members in cells.items():
        candidates = [_candidate(seeds, states, scores) for seeds in by_point(members)]
        winner = min(candidates, key=lambda row: rank_of(row, is_maximal))  # the first of the best
        if that_could_win(candidates, winner, best_possible(metric, is_maximal), is_maximal):
            continue
        trial = winner["trial"]
        selected = " ".join(f"{name}={trial.values[name]}" for name in spec.tuned if name in trial.values)
        score = winner["score"] if winner["scores"] else None
        yield Choice(key, trial.trial_id, trial.cell, selected, score, len(candidates), _now())


def _has_finished(trial: SweepTrial, states: Mapping[str, TrialState]) -> bool:
    return states[trial.trial_id].state == State.FINISHED


def _candidate(
    seeds: Sequence[SweepTrial], states: Mapping[str, TrialState], scores: Mapping[str, float]
) -> dict[str, Any]:
    """A candidate as `ranking` takes it."""
    own = [scores[t.trial_id] for t in sorted(seeds, key=lambda t: str(t.seed)) if t.trial_id in scores]
    lost = sum(states[trial.trial_id].state in _LOST for trial in seeds)
    score = statistics.fmean(own) if own else float("nan")
    return {"trial": seeds[0], "scores": own, "score": score, "lost": lost, "lacking": len(seeds) - len(own) - lost}


# looks


def _look(spec: SweepSpec, store: Store, states: Mapping[str, TrialState]) -> Look | None:
    """The next look, if every cell that it needs has all its seeds."""
    from polysweep.sweeps.planning.looks import compared  # scipy takes its time
    from polysweep.sweeps.planning.sequential import bounds

    replication, number = spec.replicate, len(spec.decisions.looks)
    pairs = open_pairs(spec)
    if replication is None or not pairs or number + bool(spec.protocol) >= len(_rounds(spec)):
        return None
    if any(look.plan != fixed_plan(spec) for look in spec.decisions.looks):
        raise UserError(
            f"replicate: another launch of {spec.name!r} has looked at it by another plan than this one's; launch again"
        )
    results = open_results(spec, store, states, is_whole=True)
    if not all(cell in results for pair in pairs for cell in pair[:2]):
        return None
    comparisons = len(pairs_of(replication, spec.tuning_trials))
    bound = bounds(replication.level / comparisons, replication.looks)[number]
    margin = replication.margin.value if replication.margin else 0.0
    outcome = [compared(pair, results[pair.better], results[pair.than], bound, margin) for pair in pairs]
    seeds = replication.looks[number]
    return Look(number + 1, seeds, bound, fixed_plan(spec), comparisons, tuple(outcome), _now())


def _rounds(spec: SweepSpec) -> list[dict[str, int]]:
    return rounds(spec, spec.tuning_trials, spec.decisions)


def open_pairs(spec: SweepSpec) -> list[Pair]:
    """The comparisons that no look has decided; none after the last look."""
    replication, looks = spec.replicate, spec.decisions.looks
    if replication is None or len(looks) == len(replication.looks):
        return []
    pairs = pairs_of(replication, spec.tuning_trials)
    if not looks:
        return pairs
    still_open = {one.cells for one in looks[-1].compared if one.verdict == OPEN}
    return [pair for pair in pairs if pair[:2] in still_open]


def reporting_trials(spec: SweepSpec) -> dict[str, list[SweepTrial]]:
    """By `cell_key` the trials that a cell's mean is made of: all of it, or with a protocol those added."""
    return {
        cell_key(members): [trial for trial in members if trial.is_added or not spec.protocol]
        for members in by_cell(spec.trials)
    }


def open_results(
    spec: SweepSpec, store: Store, states: Mapping[str, TrialState], *, is_whole: bool
) -> dict[str, CellResult]:
    """By cell of an open comparison what its seeds came to; if `is_whole`, only if all of them have a result."""
    cells = {cell for pair in open_pairs(spec) for cell in pair[:2]}
    members = {cell: trials for cell, trials in reporting_trials(spec).items() if cell in cells and trials}
    results = results_of(spec, store, states, members)
    if not is_whole:
        return results
    return {c: result for c, result in results.items() if len(result.values) + result.diverged == len(members[c])}


def results_of(
    spec: SweepSpec, store: Store, states: Mapping[str, TrialState], members: Mapping[str, Sequence[SweepTrial]]
) -> dict[str, CellResult]:
    """By cell what these trials have reported so far."""
    from polysweep.sweeps.planning.looks import CellResult

    finished = [t.trial_id for trials in members.values() for t in trials if _has_finished(t, states)]
    is_last = spec.protocol is not None and spec.protocol.retrain
    metric = reported_metric(spec)
    by = metric if is_last else spec.metric.name  # retrained trials do not measure that
    values = values_of(store, finished, metric, by=by, is_maximal=spec.metric.goal == "maximize", is_last=is_last)
    sign = 1 if is_larger_better(spec, [*spec.corners, *spec.kinds]) else -1
    results = {}
    for cell, trials in members.items():
        own = [sign * values[trial.trial_id] for trial in trials if trial.trial_id in values]
        diverged = sum(states[trial.trial_id].state == State.DIVERGED for trial in trials)
        results[cell] = CellResult(own, diverged)
    return results


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
