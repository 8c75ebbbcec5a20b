"""Where the points of `random` and `bayes` sweeps come from: pure functions of the spec and of what is in the Store.

`random`: point i draws every parameter from a stream of its own, named by the spec's `search_seed`, i and the
parameter, so that a longer sweep begins like a shorter one and a further parameter changes no other's draws. Draws are
independent, as in W&B: a point may be drawn again, and then its trials are the same ones.
`bayes`: point i is what Optuna's tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), seeded with
`search_seed` and i, proposes after the results that are known; a restart asks it again.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from polysweep.sweeps.spec.parameter import Parameter

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

TRIES: Final = 200
"""Draws in a row that repeat a known point before a space counts as exhausted."""

STARTUP: Final = 10
"""Points of bayes that are to have ended before the estimator is used; until then points are drawn at random."""

Goal = Literal["maximize", "minimize"]
Space = Sequence[Mapping[str, Parameter]]
"""By variant, its parameters and the shared ones."""


class Point(NamedTuple):
    """A choice of every parameter but the seed: the variant, and the values as the file gives them."""

    variant: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Suggestion:
    """A point with what Optuna needs to learn from it: its raw coordinates."""

    point: Point
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """What is known of a suggestion: its value, or how far it came, or only that it is being tried."""

    suggestion: Suggestion
    state: Literal["complete", "stopped", "bad", "running"]
    value: float | None = None  # complete: mean over seeds of the best epoch; stopped: of its last epoch
    epoch: int = 0  # stopped: its last epoch


def draw(space: Space, seed: int, index: int) -> Point:
    """Point `index` of a random sweep."""

    def u(name: str) -> float:
        digest = hashlib.blake2b(f"{seed} {index} {name}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest) // 2**11 + 0.5) / 2**53

    variant = min(int(u("") * len(space)), len(space) - 1)
    return Point(variant, {name: parameter.at(u(name)) for name, parameter in space[variant].items()})


def distinct_draws(space: Space, seed: int) -> Iterator[Point]:
    """The points of a random sweep of an earlier version: without repetitions.

    Ends after `TRIES` draws in a row without a new one.
    """
    seen: set[str] = set()
    index, tries = 0, 0
    while tries < TRIES:
        point = draw(space, seed, index)
        index += 1
        tries += 1
        if repr(point) not in seen:
            seen.add(repr(point))
            tries = 0
            yield point


def propose(space: Space, seed: int, goal: Goal, observations: Sequence[Observation]) -> Iterator[Suggestion]:
    """What may be the next point of a bayes sweep, the best first, none of them known; ends after `TRIES`.

    Observations outside of `space`, of a sweep that was extended, count as tried, and Optuna does not learn from them.
    """
    taken = {repr(observation.suggestion.point) for observation in observations}
    trials = [trial for observation in observations if (trial := _as_optuna_trial(space, observation)) is not None]
    different = size(space)
    if different is not None and len(taken) >= different:
        return
    running = any(observation.state == "running" for observation in observations)
    for attempt in range(TRIES):
        suggestion = _ask(space, f"{seed} {len(observations)} {attempt}", goal, trials, running)
        if repr(suggestion.point) not in taken:
            taken.add(repr(suggestion.point))
            yield suggestion


def size(space: Space) -> int | None:
    """How many different points a space has; None if a parameter is continuous."""
    supports = [[parameter.support for parameter in variant.values()] for variant in space]
    if any(support is None for variant in supports for support in variant):
        return None
    return sum(math.prod(len(support or ()) for support in variant) for variant in supports)


def _ask(space: Space, seed: str, goal: Goal, trials: Sequence[Any], running: bool) -> Suggestion:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    start = random.Random(seed).getrandbits(31)
    sampler = optuna.samplers.TPESampler(seed=start, n_startup_trials=STARTUP, constant_liar=running)
    study = optuna.create_study(sampler=sampler, direction=goal)
    study.add_trials(trials)
    trial = study.ask()
    variant = trial.suggest_categorical("variant", range(len(space))) if len(space) > 1 else 0
    raw = {} if len(space) == 1 else {"variant": variant}
    values = {}
    for name, parameter in space[variant].items():
        if parameter.is_fixed:
            values[name] = parameter.grid[0] if parameter.grid else None
            continue
        key = _key(space, variant, name)
        raw[key] = _suggest(trial, key, parameter.optuna())
        values[name] = parameter.from_optuna(raw[key])
    return Suggestion(Point(variant, values), raw)


def _suggest(trial: Any, key: str, distribution: Any) -> Any:
    if hasattr(distribution, "choices"):
        return trial.suggest_categorical(key, distribution.choices)
    if isinstance(distribution.low, int):
        return trial.suggest_int(key, distribution.low, distribution.high)
    return trial.suggest_float(key, distribution.low, distribution.high, log=distribution.log)


def _key(space: Space, variant: int, name: str) -> str:
    """The name of a coordinate: shared parameters have one for all variants."""
    shared = all(name in other and other[name] == space[variant][name] for other in space)
    return name if shared else f"{variant}.{name}"


def _as_optuna_trial(space: Space, observation: Observation) -> Any:
    """An observation as a trial of Optuna; None if it is outside of the space.

    A point whose seeds diverged or failed counts as worse than all others: pruned before its first step.
    """
    from optuna.trial import TrialState, create_trial

    suggestion = observation.suggestion
    distributions = _distributions(space, suggestion)
    if distributions is None or not all(_holds(distributions[key], raw) for key, raw in suggestion.raw.items()):
        return None
    states = {"complete": TrialState.COMPLETE, "running": TrialState.RUNNING}
    return create_trial(
        state=states.get(observation.state, TrialState.PRUNED),
        value=observation.value if observation.state == "complete" else None,
        params=dict(suggestion.raw),
        distributions=distributions,
        intermediate_values={} if observation.state != "stopped" else {observation.epoch: observation.value or 0.0},
    )


def _distributions(space: Space, suggestion: Suggestion) -> dict[str, BaseDistribution] | None:
    """By coordinate of a suggestion, what Optuna draws it from; None if the space has other coordinates."""
    from optuna.distributions import CategoricalDistribution

    variant = suggestion.point.variant
    if variant >= len(space):
        return None
    parameters = {_key(space, variant, name): parameter for name, parameter in space[variant].items()}
    distributions = {key: parameter.optuna() for key, parameter in parameters.items() if not parameter.is_fixed}
    if len(space) > 1:
        distributions["variant"] = CategoricalDistribution(range(len(space)))
    if distributions.keys() != suggestion.raw.keys():
        return None
    return {key: distributions[key] for key in suggestion.raw}


def _holds(distribution: Any, raw: Any) -> bool:
    """Whether a coordinate may be drawn."""
    if hasattr(distribution, "choices"):
        return raw in distribution.choices
    return bool(distribution.low <= raw <= distribution.high)
