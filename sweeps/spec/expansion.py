"""From choices of parameters to trials: every config is validated as a whole."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.search import Point, Suggestion, distinct_draws, draw
from polysweep.sweeps.spec.sweep import Range, SweepTrial, nested, with_cells
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.text import brief

SCALARS: Final = (
    "seed", "rho", "lr", "lr_min", "gamma_b", "lower_bound", "weight_decay", "label_smoothing", "label_noise",
)  # fmt: skip
"""Fields whose value changes neither the data nor which parts of a user are loaded."""


def trial_of(values: Mapping[str, Any], variant: int = 0, *, recorded: bool = False) -> SweepTrial:
    """The trial with these values. Raises `ConfigError` for the first one that is not valid."""
    config = TrialConfig.parse(nested(values), recorded=recorded)
    return SweepTrial(config.trial_id, config.flat(), digits(config.signature), variant)


@lru_cache(maxsize=1024)
def digits(signature: str) -> str:
    """Eight digits that stand for what the rows of a stack share: trials of one signature cost the same."""
    return hashlib.sha256(signature.encode()).hexdigest()[:8]


def kinds(trials: Iterable[SweepTrial]) -> list[SweepTrial]:
    """One trial of each kind: of those that differ in `SCALARS` only, the first."""
    by_kind: dict[tuple[Any, ...], SweepTrial] = {}
    for trial in trials:
        by_kind.setdefault(tuple((n, v) for n, v in trial.values.items() if n not in SCALARS), trial)
    return list(by_kind.values())


@dataclass(frozen=True)
class Expansion:
    """The trials of a spec, each once, and how many of its points are there a second time."""

    trials: list[SweepTrial]
    points: int  # in the grid, drawn or proposed, without seeds
    repeated: int  # of these, points whose trials are all those of earlier ones

    @property
    def different(self) -> int:
        """How many points there are if each is counted once."""
        return self.points - self.repeated


def expand(
    spec: SpecFields,
    where: Source,
    suggestions: Sequence[Suggestion] = (),
    *,
    recorded: bool = False,
    distinct: bool = False,
) -> Expansion:
    """The trials in the file's order: variants, then parameters as written, then seeds.

    For a random sweep they are in the order of the draws, which are `distinct` if an earlier version has launched it;
    for a bayes sweep they are those of `suggestions`. A value that is listed twice, and a point that is drawn again, is
    the same trial. Raises `SpecError` with the line of the parameter that makes a config invalid, or of a variant of a
    grid that repeats another one.
    """
    trials: dict[str, SweepTrial] = {}
    points = repeated = 0
    for point in _points(spec, where, suggestions, distinct=distinct):
        if spec.run_cap is not None and len(trials) >= spec.run_cap:
            break
        before = len(trials)
        for values in _with_seeds(point, spec.seeds):
            trial = _trial_at(spec, where, point.variant, values, recorded=recorded)
            if trials.setdefault(trial.trial_id, trial).variant != point.variant and spec.method == "grid":
                raise where.error(
                    ("variants", point.variant),
                    f"{brief(values)} is listed twice: its config equals that of an earlier variant",
                )
        points += 1
        repeated += len(trials) == before
    return Expansion(with_cells(list(trials.values())[: spec.run_cap], spec.written, spec.tuned), points, repeated)


def corners(spec: SpecFields, where: Source, *, recorded: bool = False) -> list[TrialConfig]:
    """Stand-ins for the configs of a bayes sweep, whose points are not known yet: the ends of every range."""
    if spec.method != "bayes":
        return []
    configs = []
    for variant, space in enumerate(spec.space):
        choices = [{name: value} for name, parameter in space.items() for value in parameter.extremes]
        if {"lr", "lr_min"} <= space.keys():  # which are checked against each other
            choices.insert(0, {"lr": space["lr"].at(1e-6), "lr_min": space["lr_min"].at(1 - 1e-6)})
        for choice in choices:
            values = {**_middle(spec, variant), **choice}
            configs.append(_trial_at(spec, where, variant, values, recorded=recorded).config)
    return configs


def middles(spec: SpecFields, where: Source, *, recorded: bool = False) -> list[SweepTrial]:
    """Stand-ins for the trials of a bayes sweep: of each variant the middle of its ranges."""
    if spec.method != "bayes":
        return []
    return [
        _trial_at(spec, where, variant, _middle(spec, variant), recorded=recorded)
        for variant in range(len(spec.variants))
    ]


def _middle(spec: SpecFields, variant: int) -> dict[str, Any]:
    return {**{name: one.at(0.5) for name, one in spec.space[variant].items()}, "seed": spec.seeds[0]}


def ranges(spec: SpecFields) -> Iterator[tuple[int, str, Range]]:
    """What the tuned parameters of a search are drawn from: variant, name, range."""
    for variant, space in enumerate(spec.space):
        for name in spec.tuned:
            ends = space[name].ends if name in space else None
            if ends is not None and ends[0] < ends[1]:
                kind = space[name].kind
                is_log = "log_uniform" in kind and ends[0] > 0
                yield variant, name, Range(*ends, is_log=is_log, is_list=kind == "categorical")


def _points(spec: SpecFields, where: Source, suggestions: Sequence[Suggestion], *, distinct: bool) -> Iterator[Point]:
    """The points, without seeds."""
    if spec.method == "bayes":
        yield from (suggestion.point for suggestion in suggestions)
    elif spec.budget is not None:
        yield from _budgeted(spec, spec.budget)
    elif spec.method == "random" and not distinct:
        yield from (draw(spec.space, spec.search_seed, index) for index in range(spec.points or 0))
    elif spec.method == "random":
        draws = list(itertools.islice(distinct_draws(spec.space, spec.search_seed), spec.points))
        if len(draws) < (spec.points or 0):
            raise where.error(
                ("run_cap",),
                f"run_cap: {spec.run_cap} trials with {len(spec.seeds)} seeds are {spec.points} points, but only "
                f"{len(draws)} different ones can be drawn, and this sweep was launched with different ones only",
            )
        yield from draws
    else:
        for variant, space in enumerate(spec.space):
            for choice in itertools.product(*[parameter.grid or [] for parameter in space.values()]):
                yield Point(variant, dict(zip(space, choice, strict=True)))


def candidates_of(spec: SpecFields, budget: int) -> list[list[Mapping[str, Any]]]:
    """By variant the same draws of what is tuned for every cell: `budget` different ones, or as many as there are."""
    spaces = [{name: one for name, one in space.items() if name in spec.tuned} for space in spec.space]
    draws = [itertools.islice(distinct_draws([space], spec.search_seed), budget) for space in spaces]
    return [[point.values for point in points] for points in draws]


def _budgeted(spec: SpecFields, budget: int) -> Iterator[Point]:
    """Every cell with its candidates."""
    for variant, (space, candidates) in enumerate(zip(spec.space, candidates_of(spec, budget), strict=True)):
        listed = {name: parameter.grid or [] for name, parameter in space.items() if name not in spec.tuned}
        for choice in itertools.product(*listed.values()):
            cell = dict(zip(listed, choice, strict=True))
            yield from (Point(variant, {name: {**cell, **one}[name] for name in space}) for one in candidates)


def _with_seeds(point: Point, seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    if "seed" in point.values:
        yield dict(point.values)
    else:
        yield from ({**point.values, "seed": seed} for seed in seeds)


def _trial_at(
    spec: SpecFields, where: Source, variant: int, values: Mapping[str, Any], *, recorded: bool
) -> SweepTrial:
    """`trial_of`, with an error at the line that gives the field."""
    try:
        return trial_of(values, variant, recorded=recorded)
    except ConfigError as error:
        raise where.error(path_of(spec, error.key, variant, values), str(error)) from None


def path_of(spec: SpecFields, name: str, variant: int, values: Mapping[str, Any]) -> KeyPath:
    """Where in the file a field is given, of all options the first; a missing one would belong in the variant."""
    key = name if name in values else name.split(".", maxsplit=1)[0]
    key = next((one for one in values if one.startswith(f"{key}.")), key)
    if key in spec.variants[variant] or key not in values:
        return "variants", variant, key
    return "parameters", key
