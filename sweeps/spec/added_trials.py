"""The trials that decisions add to a sweep: reporting seeds of chosen candidates, further seeds of open comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from polysweep.sweeps.spec.comparisons import pairs_of
from polysweep.sweeps.spec.decisions import Decisions, by_key
from polysweep.sweeps.spec.expansion import trial_of
from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.protocol import more_seeds
from polysweep.sweeps.spec.sweep import SweepTrial

Cache = dict[tuple[str, int], SweepTrial]
"""By the chosen candidate's first trial and a seed the trial: a config takes its time to be checked."""


def added_trials(
    spec: SpecFields, tuning: Sequence[SweepTrial], decisions: Decisions, cache: Cache
) -> list[SweepTrial]:
    """The trials that are not tuning trials, in the order in which they are decided: look by look, cell by cell."""
    by_cell = by_key(tuning)
    begun = dict.fromkeys(by_cell, 0 if spec.protocol else len(spec.seeds))  # seeds of each cell that there are
    trials: list[SweepTrial] = []
    for sizes in rounds(spec, tuning, decisions):
        for cell, size in sizes.items():
            chosen = chosen_trial(spec, by_cell[cell], decisions, cell)
            if chosen is not None:
                for seed in all_seeds(spec, size)[begun[cell] :]:
                    key = (chosen.trial_id, seed)
                    if key not in cache:
                        cache[key] = _with_seed(spec, chosen, seed)
                    trials.append(cache[key])
                begun[cell] = max(begun[cell], size)
    return trials


def rounds(spec: SpecFields, tuning: Sequence[SweepTrial], decisions: Decisions) -> list[dict[str, int]]:
    """By cell the seeds that it is to have, after the tuning and then after each look, within `max_trials`."""
    cells, first = list(by_key(tuning)), len(spec.report_seeds)
    sizes = [dict.fromkeys(cells, first)] if spec.protocol else []
    replication = spec.replicate
    if replication is None or not cells:
        return sizes
    compared = {cell for pair in pairs_of(replication, tuning) for cell in (pair.better, pair.than)}
    open_after = [compared, *(look.open_cells for look in decisions.looks)]
    for size, open_cells in zip(replication.looks, open_after, strict=False):
        grown = {cell: size for cell in cells if cell in open_cells}
        if not grown or total_trials(spec, tuning, [*sizes, grown]) > (replication.max_trials or float("inf")):
            break
        sizes.append(grown)
    return sizes


def sizes_of(spec: SpecFields, tuning: Sequence[SweepTrial], decisions: Decisions) -> dict[str, int]:
    """By cell the seeds of its mean, once its candidate is chosen."""
    sizes: dict[str, int] = {}
    for of_round in rounds(spec, tuning, decisions):
        sizes |= of_round
    return sizes


def total_trials(spec: SpecFields, tuning: Sequence[SweepTrial], sizes: Sequence[Mapping[str, int]]) -> int:
    """All trials of the sweep once each cell has the seeds of these rounds."""
    there = 0 if spec.protocol else len(spec.report_seeds)
    final: dict[str, int] = {}
    for of_round in sizes:
        final |= of_round
    return len(tuning) + sum(max(0, size - there) for size in final.values())


def all_seeds(spec: SpecFields, count: int) -> list[int]:
    """The first so many seeds of a cell's means."""
    first = spec.report_seeds
    used = [*first, *(spec.seeds if spec.protocol else ())]
    return [*first, *islice(more_seeds(used), max(0, count - len(first)))][:count]


def chosen_trial(spec: SpecFields, members: Sequence[SweepTrial], decisions: Decisions, cell: str) -> SweepTrial | None:
    """The first tuning trial of a cell's chosen candidate; None if none is chosen yet."""
    if spec.protocol is None:
        return members[0]
    choice = decisions.choices.get(cell)
    return next((trial for trial in members if choice and trial.trial_id == choice.chosen), None)


def _with_seed(spec: SpecFields, chosen: SweepTrial, seed: int) -> SweepTrial:
    values = {**chosen.values, "seed": seed}
    if spec.protocol and spec.protocol.retrain:
        del values["val_fraction"]
    return replace(trial_of(values, chosen.variant, recorded=True), is_added=True)
