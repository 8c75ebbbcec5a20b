"""What must hold between the keys of a spec: every check collects its problems at the lines of the offending keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from polysweep.sweeps.spec.fields import Launch, Metric, SpecFields
from polysweep.sweeps.spec.hyperband import Hyperband
from polysweep.sweeps.spec.parameter import Parameter
from polysweep.sweeps.spec.parsing import MAX_TRIALS, Parameters
from polysweep.sweeps.spec.preregistration import Claim
from polysweep.sweeps.spec.problems import Problems
from polysweep.sweeps.spec.protocol import Protocol, Replication
from polysweep.sweeps.spec.protocol_checks import check_protocol, check_replication
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source, SpecError
from polysweep.trainer.components.options import MAX_STACK
from polysweep.trainer.components.plugins import component, metrics_of
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import expected
from polysweep.trainer.text import brief

_NESTED: Final[Mapping[str, type[BaseModel]]] = {
    "launch": Launch, "metric": Metric, "early_terminate": Hyperband, "claims": Claim, "protocol": Protocol,
    "replicate": Replication,
}  # fmt: skip
"""The keys whose value is a mapping with keys of its own, or a list of such."""


def check_fields(spec: SpecFields, problems: Problems) -> None:
    """Everything that can be checked before the spec is expanded."""
    _check_tuned(spec, problems)
    _check_variants(spec, problems)
    check_protocol(spec, problems)
    check_replication(spec, problems)
    for path, parameters in _parameters_by_path(spec):
        _check_method(spec, path, parameters, problems)
    with problems.collecting():
        _check_number_of_trials(spec, problems.where)
    if spec.by_points and spec.launch.stack not in ("auto", 1, len(spec.seeds)):
        problems.add(
            ("launch", "stack"),
            f"launch.stack: {spec.launch.stack}, but with bayes or early_terminate a stack is one point with its "
            f"{len(spec.seeds)} seeds; leave it out, or use 1",
        )


def check_metric(spec: SpecFields, configs: Iterable[TrialConfig], where: Source) -> None:
    """Whether each of these configs measures the metric."""
    name = spec.metric.name
    for config in configs:
        if name.startswith("val/") and not config.val_fraction:
            raise where.error(("metric",), f"metric {name!r} requires val_fraction > 0: no data is held out")
        logged = metrics_of(component("task", config.task))
        if name not in logged:
            raise where.error(
                ("metric",), f"metric.name: task {config.task!r} does not log {name!r}; {expected('', logged)}"
            )


def check_metric_is_given(spec: SpecFields, data: Mapping[str, Any], where: Source) -> None:
    """A search must not optimize a metric that nobody has chosen."""
    if data.get("metric") is not None:
        return
    for key, what, is_used in (
        ("method", "method 'bayes'", spec.method == "bayes"),
        ("early_terminate", "early_terminate", spec.early_terminate is not None),
    ):
        if is_used:
            raise where.error((key,), f"{what} requires a 'metric': {{name: ..., goal: maximize or minimize}}")


_UNIONS: Final[Mapping[KeyPath, str]] = {
    ("launch", "stack"): f"auto or a number of trials from 1 to {MAX_STACK}",
    ("launch", "gpus"): "auto, a fraction of a GPU such as 0.5 (at least 0.0001), or a whole number of GPUs",
    ("replicate", "compare"): "a field such as scheduler, or one with values: {scheduler: [constant, polyak]}",
}


def is_first_of_union(problem: ErrorDetails) -> bool:
    """Whether a problem is of a value as a whole: of what is within a branch, another branch is refused as a whole."""
    return problem["loc"][:2] not in _UNIONS or len(problem["loc"]) <= 3  # key, key, branch


def validation_problem(problem: ErrorDetails, where: Source) -> SpecError:
    """What pydantic refuses in a spec, in one line."""
    path: KeyPath = problem["loc"]
    if problem["type"] == "extra_forbidden":
        keys = list(_NESTED[str(path[0])].model_fields)
        return where.error(path, f"unknown key {brief(path[-1])} under {path[0]!r}; {expected(path[-1], keys)}")
    if path[:2] in _UNIONS:  # pydantic names the branches of a union
        return where.error(
            path[:2], f"{path[0]}.{path[1]}: expected {_UNIONS[path[:2]]}, not {brief(problem['input'])}"
        )
    if problem["type"] == "model_type":
        first = ", ".join(f"{key}: ..." for key in list(_NESTED[str(path[0])].model_fields)[:2])
        return where.error(path, f"{path[0]}: expected {{{first}}}, not {brief(problem['input'])}")
    name = ".".join(str(part) for part in path)
    got = "" if problem["type"] == "missing" else f" (got {brief(problem['input'])})"
    return where.error(path, f"{name}: {problem.get('ctx', {}).get('error') or problem['msg']}{got}")


def _check_tuned(spec: SpecFields, problems: Problems) -> None:
    for index, name in enumerate(spec.tuned):
        if name not in spec.written or name == "seed":
            choices = [field for field in spec.written if field != "seed"]
            problems.add(
                ("tuned", index),
                f"tuned: {brief(name)} is not a parameter of this sweep that can be tuned; {expected(name, choices)}",
            )


def _check_variants(spec: SpecFields, problems: Problems) -> None:
    for index, variant in enumerate(spec.variants):
        for name in variant.keys() & spec.parameters.keys():
            problems.add(
                ("variants", index, name),
                f"{name!r} is both in 'parameters' and in a variant; give it once",
            )


def _parameters_by_path(spec: SpecFields) -> Iterator[tuple[KeyPath, Parameters]]:
    yield ("parameters",), spec.parameters
    for index, variant in enumerate(spec.variants):
        yield ("variants", index), variant


def _check_method(spec: SpecFields, path: KeyPath, parameters: Parameters, problems: Problems) -> None:
    """Whether every entry fits the method."""
    for name, parameter in parameters.items():
        if spec.method == "grid" and parameter.grid is None:
            problems.add(
                (*path, name),
                f"{name!r}: the values of {parameter.kind} cannot be listed, and a grid needs {{value: x}} or "
                "{values: [x, ...]}; or use method: random",
            )
        if spec.method != "random" and parameter.probabilities is not None:
            problems.add((*path, name), f"{name!r}: 'probabilities' are for method: random only; leave them out")
        if spec.method == "bayes" and name == "seed":
            problems.add((*path, name), "'seed' is not searched; use seeds")


def _check_number_of_trials(spec: SpecFields, where: Source) -> None:
    """Whether the number of trials is known, is a multiple of the seeds, and is not too large."""
    seeds = len(spec.seeds)
    if spec.run_cap is None and spec.method != "grid" and not spec.budget:
        raise where.error(
            ("method",),
            f"method {spec.method!r} requires run_cap (total number of trials), here or as --count N; without it the "
            "sweep never ends",
        )
    if spec.run_cap is not None and spec.run_cap % seeds:
        low = spec.run_cap - spec.run_cap % seeds
        choices = f"{low} or {low + seeds}" if low else str(seeds)
        raise where.error(
            ("run_cap",),
            f"run_cap: {spec.run_cap} is not a multiple of the {seeds} seeds; use {choices}",
        )
    count = spec.run_cap or sum(_points(spec, space) * (1 if "seed" in space else seeds) for space in spec.space)
    if count > MAX_TRIALS:
        raise where.error((), f"{count} trials; a sweep has at most {MAX_TRIALS}")


def _points(spec: SpecFields, space: Mapping[str, Parameter]) -> int:
    """How many points a variant has in the grid, or with the candidates that are drawn for each cell."""
    listed = [one for name, one in space.items() if not (spec.budget and name in spec.tuned)]
    return math.prod(len(parameter.grid or ()) for parameter in listed) * (spec.budget or 1)
