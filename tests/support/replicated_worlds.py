"""Sweeps of known truth that tune, report and replicate: the product's own decisions on made-up results, in memory."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import special

from polysweep.sweeps.planning.decide import decided
from polysweep.sweeps.planning.sequential import FEWER
from polysweep.sweeps.spec.decisions import BETTER, EQUIVALENT, OPEN, WORSE, Compared
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.store.states import State, TrialState
from polysweep.trainer.errors import UserError

RHOS = (0.1, 0.2, 0.3, 0.4)
LOOKS = (3, 5, 10, 20)
Truth = Callable[[Mapping[str, Any]], tuple[float, float]]
"""By a trial's fields the true mean and the std over seeds of its test accuracy."""


FIELDS: dict[str, Any] = {
    "name": "world",
    "parameters": {
        "task": {"value": "digits"},
        "model": {"value": "mlp"},
        "optimizer": {"value": "usam"},
        "rho": {"values": list(RHOS)},
        "epochs": {"value": 1},
    },
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"values": [0.1, 0.05, 0.025]}},
        {"scheduler": {"value": "polyak"}},
    ],
    "tuned": ["lr"],
}
"""Constant with three step sizes, and Polyak, at four radii."""
PROTOCOL: dict[str, Any] = {"tune_on": [0, 1, 2], "report_on": [3, 4, 5]}
REPLICATE: dict[str, Any] = {"compare": "scheduler", "looks": list(LOOKS)}


def world_spec(**changes: Any) -> SweepSpec:
    """`FIELDS`, tuned on three seeds and replicated on others."""
    fields = {**FIELDS, "protocol": PROTOCOL, "replicate": REPLICATE, **changes}
    return SweepSpec.parse(
        json.dumps({name: value for name, value in fields.items() if value is not None}), "world.yaml"
    )


def problem_of(**changes: Any) -> str:
    """The one line with which the spec of such a world is refused."""
    fields = {**FIELDS, "protocol": PROTOCOL, "replicate": REPLICATE, **changes}
    text = json.dumps({name: value for name, value in fields.items() if value is not None}, indent=1)
    with pytest.raises(UserError) as caught:
        SweepSpec.parse(text, "world.yaml")
    message = str(caught.value)
    assert message.startswith("world.yaml:") and "\n" not in message, message
    return message


@dataclass
class World:
    """Results that are drawn as a truth says, in place of a Store; the same trial always has the same one."""

    truth: Truth
    number: int
    trials: Mapping[str, SweepTrial]

    def histories(self, trial_ids: Iterable[str]) -> Iterator[tuple[str, pa.Table]]:
        for trial_id in trial_ids:
            yield trial_id, pa.table({"epoch": [1], "test/top1": [self.value(trial_id)]})

    def value(self, trial_id: str) -> float:
        mean, std = self.truth(self.trials[trial_id].values)
        draw = np.random.default_rng([self.number, int(hashlib.sha256(trial_id.encode()).hexdigest()[:8], 16)])
        return mean + std * float(draw.standard_normal())


def run_world(
    spec: SweepSpec, truth: Truth, number: int, diverges: Callable[[SweepTrial], bool] = lambda _: False
) -> SweepSpec:
    """The sweep after all decisions of one world."""
    while True:
        trials = {trial.trial_id: trial for trial in spec.trials}
        states = {i: TrialState(State.DIVERGED if diverges(t) else State.FINISHED) for i, t in trials.items()}
        world: Any = World(truth, number, trials)
        after = decided(spec, world, states, keep=False)
        if after is spec:
            return spec
        spec = after


def verdicts(spec: SweepSpec) -> dict[str, Compared]:
    """By radius the last word on it."""
    return {one.where: one for look in spec.decisions.looks for one in look.compared}


@dataclass
class Rates:
    """What worlds came to. `seeds` is the mean number of reporting seeds of a cell; all others are shares."""

    worlds: int
    any_better_or_worse: float  # of worlds
    better: float  # of comparisons
    worse: float
    equivalent: float
    open: float
    seeds: float


def rates(spec: SweepSpec, truth: Truth, worlds: int, start: int = 0) -> Rates:
    """Run so many worlds."""
    counts = dict.fromkeys((BETTER, WORSE, EQUIVALENT, OPEN), 0)
    shown, seeds, cells = 0, 0, 2 * len(RHOS)
    for number in range(start, start + worlds):
        after = run_world(spec, truth, number)
        found = [one.verdict for one in verdicts(after).values()]
        for verdict in found:
            counts[verdict] += 1
        shown += any(verdict in (BETTER, WORSE) for verdict in found)
        seeds += sum(trial.is_added for trial in after.trials)
    of = worlds * len(RHOS)
    shares = [counts[verdict] / of for verdict in (BETTER, WORSE, EQUIVALENT, OPEN)]
    return Rates(worlds, shown / worlds, *shares, seeds / worlds / cells)


def error_rates(
    levels: Sequence[float], looks: Sequence[int], ratio: float, worlds: int, gap: float = 0.0, fewer: float = FEWER
) -> float:
    """How often any look shows two cells to differ whose stds are 1 and `ratio`, in as many comparisons as worlds.

    The intervals are those of `sequential.interval`, for all worlds at once; with `fewer` = 0 those of Welch.
    """
    rng, most = np.random.default_rng(0), looks[-1]
    one, other = rng.standard_normal((worlds, most)), rng.standard_normal((worlds, most)) * ratio + gap
    shown = np.zeros(worlds, dtype=bool)
    for seeds, level in zip(looks, levels, strict=True):
        parts = [values[:, :seeds].var(axis=1, ddof=1) / seeds for values in (one, other)]
        total = parts[0] + parts[1]
        welch = total**2 / ((parts[0] ** 2 + parts[1] ** 2) / (seeds - 1))
        reach = special.stdtrit(np.maximum(seeds - 1, welch - fewer), 1 - level / 2) * np.sqrt(total)
        shown |= abs(one[:, :seeds].mean(axis=1) - other[:, :seeds].mean(axis=1)) > reach
    return float(shown.mean())


def mean_seeds(levels: Sequence[float], looks: Sequence[int], worlds: int, gap: float, fewer: float = FEWER) -> float:
    """Seeds per cell until two cells are told apart, or the last look: by look the share that comes so far."""
    seeds = float(looks[0])
    for place, (before, after) in enumerate(itertools.pairwise(looks), start=1):
        seeds += (after - before) * (1 - error_rates(levels[:place], looks[:place], 1.0, worlds, gap, fewer))
    return seeds


def most_by_chance(level: float, worlds: int) -> float:
    """A rate that a true one of `level` exceeds in one of a thousand runs of so many worlds."""
    return level + 3.1 * math.sqrt(level * (1 - level) / worlds)
