"""What comes after the trials that a launch would start: reporting seeds, looks, and their power, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from polysweep.sweeps.planning.decide import open_pairs, open_results, results_of
from polysweep.sweeps.planning.decision_lines import amount_text
from polysweep.sweeps.planning.looks import LEAST_SEEDS, CellResult
from polysweep.sweeps.planning.sequential import bounds, equivalence_power, power, shown_gap
from polysweep.sweeps.planning.welch import Sample, has_spread
from polysweep.sweeps.spec.added_trials import chosen_trial, rounds, sizes_of, total_trials
from polysweep.sweeps.spec.comparisons import Pair, pairs_of
from polysweep.sweeps.spec.decisions import by_key
from polysweep.sweeps.spec.protocol import Replication
from polysweep.sweeps.spec.replication_checks import reported_metric
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.states import State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import is_accuracy

USUAL_POWER = 0.8


def lines_ahead(spec: SweepSpec, store: Store, states: Mapping[str, TrialState]) -> Iterator[str]:
    """What comes after the trials that a launch would start: reporting seeds, looks, and their power."""
    tuning = spec.tuning_trials
    if spec.protocol is not None:
        sizes = sizes_of(spec, tuning, spec.decisions)
        counts = [sizes[cell] for cell in by_key(tuning) if cell not in spec.decisions.choices]
        count = len(spec.protocol.report_on)
        if counts:
            seeds = " or ".join(map(str, sorted(set(counts))))
            yield (
                f"then the chosen candidate of each of {len(counts)} cells runs on {seeds} reporting seeds: "
                f"{sum(counts)} trials"
            )
        elif spec.method == "bayes" and not tuning:
            yield f"then the chosen candidate of each cell runs on {count} reporting seeds"
    if spec.replicate is not None and (tuning or spec.middles):
        yield from _replication_ahead(spec, spec.replicate, store, states)


def _replication_ahead(
    spec: SweepSpec, replication: Replication, store: Store, states: Mapping[str, TrialState]
) -> Iterator[str]:
    tuning, decisions = spec.tuning_trials, spec.decisions
    pairs, open_ = pairs_of(replication, tuning), open_pairs(spec)
    levels = bounds(replication.level / max(1, len(pairs)), replication.looks)
    looks = ", ".join(f"{size} (at {level:.2g})" for size, level in zip(replication.looks, levels, strict=True))
    margin = f", equivalent within {replication.margin}" if replication.margin else ""
    yield (
        f"replicate: {replication.field} by {reported_metric(spec)}{margin}; comparisons: {len(pairs)}; level "
        f"{replication.level:g} over all of them and all looks, at n = {looks}"
    )
    number = len(decisions.looks)
    if not open_:
        return
    if failed := sum(state.state == State.FAILED for state in states.values()):
        yield f"failed trials: {failed}; no look is made without their results: launch with --retry-failed"
    sizes = rounds(spec, tuning, decisions)
    if number + bool(spec.protocol) >= len(sizes):
        cells = decisions.looks[-1].open_cells if number else {cell for pair in open_ for cell in pair[:2]}
        needed = total_trials(spec, tuning, [*sizes, dict.fromkeys(cells, replication.looks[number])])
        yield (
            f"look {number + 1} is not made: it needs {needed} trials in all, and max_trials is "
            f"{replication.max_trials}; open comparisons: {len(open_)}"
        )
        return
    yield from _power_lines(spec, replication, levels[number], open_, _seen(spec, store, states))


def _seen(spec: SweepSpec, store: Store, states: Mapping[str, TrialState]) -> dict[str, CellResult]:
    """By cell the seeds of its mean; as long as these are too few for a std, the tuning seeds of its candidate."""
    results = open_results(spec, store, states, is_whole=False)
    tuning = {}
    for cell, members in by_key(spec.tuning_trials).items():
        chosen = chosen_trial(spec, members, spec.decisions, cell)
        if chosen is not None and (cell not in results or len(results[cell].values) < LEAST_SEEDS):
            tuning[cell] = [trial for trial in members if trial.point == chosen.point]
    return {**results, **results_of(spec, store, states, tuning)}


def _power_lines(
    spec: SweepSpec, replication: Replication, bound: float, pairs: Sequence[Pair], results: Mapping[str, CellResult]
) -> Iterator[str]:
    """Of each open comparison the power of the next look, by the stds so far."""
    metric, number = reported_metric(spec), len(spec.decisions.looks)
    seeds = replication.looks[number]
    yield f"look {number + 1} at {seeds} seeds; its power by the stds so far:"
    for pair in pairs:
        samples = [Sample.of(results[cell].values) if cell in results else Sample.of([]) for cell in pair[:2]]
        name = f"  {pair.where}: " if pair.where else "  "
        name += f"{replication.field} {pair.values[0]} and {pair.values[1]}: "
        if min(sample.n for sample in samples) < LEAST_SEEDS or not has_spread(samples[:1], samples[1:]):
            yield f"{name}not known before two seeds of both have finished and differ"
            continue
        yield name + _power_text((samples[0].std, samples[1].std), seeds, bound, replication, metric)


def _power_text(stds: tuple[float, float], seeds: int, bound: float, replication: Replication, metric: str) -> str:
    shown = shown_gap(stds, seeds, bound, USUAL_POWER)
    points = " points" if is_accuracy(metric) else ""
    text = f"a difference of {amount_text(shown, metric)}{points} is shown with a chance of {USUAL_POWER:.0%}"
    if replication.margin is None:
        return text
    margin = replication.margin.value
    return (
        f"{text}, of {replication.margin} with {power(stds, seeds, bound, margin):.0%}; that equal cells are "
        f"equivalent with {equivalence_power(stds, seeds, bound, margin):.0%}"
    )
