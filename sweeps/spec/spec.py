"""The sweep spec: the W&B sweep format plus variants, tuned parameters and seeds; from YAML to trials."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, WithJsonSchema

from polysweep.sweeps.spec.expansion import Point, kinds, trial_of
from polysweep.sweeps.spec.hyperband import Hyperband
from polysweep.sweeps.spec.parsing import (
    MAX_TRIALS,
    Parameters,
    read_parameters,
    read_rename,
    read_seeds,
    read_variants,
)
from polysweep.sweeps.spec.search import Space, Suggestion, distinct_draws
from polysweep.sweeps.spec.sweep import (
    Range,
    RecordedMetric,
    Resources,
    Selector,
    Settings,
    Sweep,
    SweepTrial,
    with_cells,
)
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source, SpecError, kind_of, read_text, read_yaml
from polysweep.trainer.components.options import MAX_STACK, Count, PathText, Width, number
from polysweep.trainer.components.plugins import component, metrics_of
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError, expected
from polysweep.trainer.history import METRICS
from polysweep.trainer.text import brief

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
IGNORED: Final = ("program", "command")
"""Keys of a W&B sweep that have no sense here: polysweep has its own trainer."""

Amount = Annotated[float, BeforeValidator(number), Field(ge=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, strict=True)]
_SEEDS_SCHEMA: Final = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "uniqueItems": True},
    ]
}


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Metric(Selector, _Strict):
    """What selects the best epoch and the tuned parameters."""

    name: Literal[METRICS]  # type: ignore[valid-type]
    goal: Literal["maximize", "minimize"]
    target: Annotated[float, BeforeValidator(number), Field(allow_inf_nan=False)] | None = None
    """Once a trial reaches it, none is started any more."""


class Launch(_Strict):
    """How trials are run; nothing here changes what a trial is, except that `stack` fixes K at its first start."""

    stack: Literal["auto"] | Width = "auto"  # trials per stack, K
    cpus: Count = 1  # cores, and torch threads, per stack
    gpus: Amount = 0  # GPUs per stack; a fraction shares one
    concurrency: Count | None = None  # stacks at once, by default as many as there is room for
    max_failures: Whole = 3  # times that a trial is tried again, from its checkpoint, after an error of its own
    data_dir: PathText | None = None  # folder of the data sets
    checkpoint_seconds: Amount = 1.0  # least time between checkpoints
    keep: Literal["last", "best", "none"] = "last"  # the checkpoint that stays after the end; best: by the metric

    @property
    def device(self) -> str:
        """What a stack's tensors lie on."""
        return "cuda" if self.gpus else "cpu"


class SweepSpec(_Strict):
    """A sweep: the points of `parameters` and one of `variants` that `method` names, each with all the seeds.

    `SweepSpec.load` reads a file, `SweepSpec.parse` a text; both raise `SpecError` with file and line.
    """

    name: Annotated[str, Field(pattern=f"^{NAME_PATTERN.pattern}$")]
    method: Literal["grid", "random", "bayes"] = "grid"
    metric: Metric = Metric(name="test/top1", goal="maximize")
    parameters: Parameters
    variants: list[Parameters] = [{}]  # conditional parameters: each has its own
    tuned: list[str] = []  # chosen once per cell by the mean over seeds
    seeds: Annotated[list[int], WithJsonSchema(_SEEDS_SCHEMA)] = [0]
    run_cap: Count | None = None  # trials in all
    early_terminate: Hyperband | None = None
    search_seed: Whole = 0  # of random draws and of bayes
    rename: dict[str, str] = {}  # foreign parameter names: `{learning_rate: lr}`
    description: str | None = None
    project: str | None = None  # of W&B, where WANDB_PROJECT is not set
    entity: str | None = None  # of W&B, where WANDB_ENTITY is not set
    program: Any = None
    command: Any = None
    launch: Launch = Launch()

    _source: Source = PrivateAttr()
    _text: str = PrivateAttr(default="")
    _recorded: bool = PrivateAttr(default=False)
    _suggestions: tuple[Suggestion, ...] = PrivateAttr(default=())

    @classmethod
    def load(cls, path: str | Path, *, recorded: bool = False) -> SweepSpec:
        """Read a spec file; a missing name is the file's stem. `recorded` as of `parse`."""
        path = Path(path)
        return cls.parse(read_text(path), str(path), path.stem, recorded=recorded)

    @classmethod
    def parse(cls, text: str, source: str, stem: str = "sweep", *, recorded: bool = False) -> SweepSpec:
        """Validate a spec's text; `source` is what its errors name, `stem` the name if it gives none.

        `recorded` is for a spec that was launched: what an earlier version allowed can still be read.
        """
        data, lines = read_yaml(text, source, recorded=recorded)
        where = Source(source, lines)
        if not isinstance(data, dict):
            raise where.error((), f"a sweep spec is a mapping, not {kind_of(data)}")
        for key in data:
            if key not in cls.model_fields:
                raise where.error((key,), f"unknown key: {brief(key)}; {expected(key, cls.model_fields)}")
        rename = read_rename(data.get("rename"), where)
        values = {
            "name": stem,
            **data,
            "parameters": read_parameters(data.get("parameters"), ("parameters",), where, rename),
            "variants": read_variants(data.get("variants"), where, rename),
            "seeds": read_seeds(data, where),
        }
        if isinstance(data.get("tuned"), list):
            values["tuned"] = [rename.get(name, name) if isinstance(name, str) else name for name in data["tuned"]]
        if not isinstance(values["name"], str) or not NAME_PATTERN.fullmatch(values["name"]):
            raise where.error(
                ("name",),
                f"sweep name {brief(values['name'])}: use 1 to 64 letters, digits, '.', '_' or '-', "
                "the first a letter or digit",
            )
        try:
            spec = cls.model_validate(values)
        except ValidationError as error:
            raise _validation_error(error, where) from None
        spec._source, spec._text, spec._recorded = where, text, recorded
        spec._check()
        for key, given in (("method", spec.method == "bayes"), ("early_terminate", spec.early_terminate is not None)):
            if given and "metric" not in data:
                what = "method bayes" if key == "method" else key
                raise where.error((key,), f"{what} needs a 'metric': {{name: ..., goal: maximize or minimize}}")
        return spec

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON schema of a spec file, for editors."""
        schema = cls.model_json_schema()
        entry = {"$ref": "#/$defs/Parameter"}
        named = {"type": "object", "properties": dict.fromkeys(TrialConfig.model_fields, entry)}
        schema["properties"]["parameters"] = {**named, "additionalProperties": entry}
        schema["properties"]["variants"]["items"] = {**named, "additionalProperties": entry}
        schema["required"] = ["parameters"]
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}

    @property
    def text(self) -> str:
        """The file's text, as written."""
        return self._text

    @property
    def ignored(self) -> list[str]:
        """The keys given that have no sense here."""
        return [key for key in IGNORED if getattr(self, key) is not None]

    @property
    def space(self) -> Space:
        """By variant, all its parameters, the seed not among them."""
        return [{**self.parameters, **variant} for variant in self.variants]

    @property
    def points(self) -> int | None:
        """How many points `run_cap` allows; None where it sets no limit."""
        return None if self.run_cap is None else self.run_cap // len(self.seeds)

    @property
    def by_points(self) -> bool:
        """Whether one stack is one point with all its seeds, because results decide what is run."""
        return self.method == "bayes" or self.early_terminate is not None

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """Of a bayes sweep, the points that are known."""
        return self._suggestions

    def with_suggestions(self, suggestions: Iterable[Suggestion]) -> SweepSpec:
        """The same bayes sweep with these points as its trials."""
        spec = self.model_copy()
        for name in ("trials", "kinds"):
            spec.__dict__.pop(name, None)
        spec._suggestions = tuple(suggestions)
        return spec

    @cached_property
    def trials(self) -> list[SweepTrial]:
        """The trials in the file's order: variants, then parameters as written, then seeds.

        Of a random sweep in the order of the draws, of a bayes sweep those of the suggestions that are known. Raises
        `SpecError` with the line of the parameter that makes a config invalid.
        """
        found: dict[str, SweepTrial] = {}
        for point in self._points():
            if self.run_cap is not None and len(found) >= self.run_cap:
                break
            for values in self._with_seeds(point):
                trial = self._member(point.variant, values)
                if found.setdefault(trial.trial_id, trial) is not trial:
                    raise self._source.error(
                        ("variants", point.variant),
                        f"{brief(values)} is listed twice: its config equals that of an earlier one",
                    )
        return with_cells(list(found.values())[: self.run_cap], self.written, self.tuned)

    @property
    def written(self) -> tuple[str, ...]:
        """The parameters as the file lists them."""
        return tuple(dict.fromkeys([*self.parameters, *(name for variant in self.variants for name in variant)]))

    @cached_property
    def kinds(self) -> list[TrialConfig]:
        """One config of each kind of trial: they differ in more than scalars."""
        return [trial.config for trial in kinds(self.trials)]

    @property
    def settings(self) -> Settings:
        """What a launch keeps of it besides its trials."""
        early, is_search = self.early_terminate, self.method != "grid"
        space = [{name: entry.model_dump(exclude_none=True) for name, entry in one.items()} for one in self.space]
        return Settings(
            method=self.method,
            metric=RecordedMetric(self.metric.name, self.metric.goal, self.metric.target),
            tuned=tuple(self.tuned),
            fields=self.written,
            seeds=len(self.seeds),
            points=self.points if self.method == "bayes" else None,
            by_points=self.by_points,
            launch=Resources(self.launch.cpus, self.launch.gpus, self.launch.concurrency),
            project=self.project,
            entity=self.entity,
            early_terminate="none" if early is None else _words(early),
            space=json.dumps({"search_seed": self.search_seed, "space": space}) if is_search else "",
            ranges=tuple(self._ranges()) if is_search else (),
            text=self.text,
        )

    def as_sweep(self) -> Sweep:
        """As a launch would keep it."""
        return Sweep(self.name, self.settings, self.trials)

    def _ranges(self) -> Iterator[tuple[int, str, Range]]:
        """What the tuned parameters of a search are drawn from."""
        for variant, space in enumerate(self.space):
            for name in self.tuned:
                ends = space[name].ends if name in space else None
                if ends is not None and ends[0] < ends[1]:
                    kind = space[name].kind
                    yield variant, name, Range(*ends, is_log="log_uniform" in kind, is_list=kind == "categorical")

    def _points(self) -> Iterator[Point]:
        """The points, without seeds."""
        if self.method == "bayes":
            yield from (suggestion.point for suggestion in self._suggestions)
        elif self.method == "random":
            assert self.points is not None
            drawn = list(itertools.islice(distinct_draws(self.space, self.search_seed), self.points))
            if len(drawn) < self.points:
                raise self._source.error(
                    ("run_cap",),
                    f"run_cap: {self.run_cap} trials with {len(self.seeds)} seeds are {self.points} points, "
                    f"but only {len(drawn)} different ones can be drawn",
                )
            yield from drawn
        else:
            for index, space in enumerate(self.space):
                for choice in itertools.product(*[parameter.grid or [] for parameter in space.values()]):
                    yield Point(index, dict(zip(space, choice, strict=True)))

    def _with_seeds(self, point: Point) -> Iterator[dict[str, Any]]:
        if "seed" in point.values:
            yield dict(point.values)
        else:
            yield from ({**point.values, "seed": seed} for seed in self.seeds)

    def _member(self, variant: int, values: Mapping[str, Any]) -> SweepTrial:
        try:
            return trial_of(values, variant, recorded=self._recorded)
        except ConfigError as error:
            raise self._source.error(self._place(error.key, variant, values), str(error)) from None

    def _place(self, name: str, variant: int, values: Mapping[str, Any]) -> KeyPath:
        """Where a field is given; one that is missing belongs into the variant."""
        key = name if name in values else name.split(".", maxsplit=1)[0]
        if key in self.variants[variant] or key not in values:
            return "variants", variant, key
        return "parameters", key

    def _check(self) -> None:
        where = self._source
        known = {*self.parameters, *(name for variant in self.variants for name in variant)}
        for index, name in enumerate(self.tuned):
            if name not in known or name == "seed":
                raise where.error(
                    ("tuned", index),
                    f"tuned: {brief(name)} is no parameter of this sweep; {expected(name, known)}",
                )
        for index, variant in enumerate(self.variants):
            for name in variant.keys() & self.parameters.keys():
                raise where.error(
                    ("variants", index, name),
                    f"{name!r} is both in 'parameters' and in a variant; give it once",
                )
        self._check_method()
        self._check_cap()
        if self.by_points and self.launch.stack not in ("auto", len(self.seeds)):
            raise where.error(
                ("launch", "stack"),
                f"launch.stack: {self.launch.stack}, but with bayes or early_terminate a stack is one point with its "
                f"{len(self.seeds)} seeds; leave it out",
            )
        for config in [*self.corners, *self.kinds]:
            if self.metric.name.startswith("val/") and not config.val_fraction:
                raise where.error(("metric",), f"{self.metric.name} needs val_fraction > 0: nothing is held out")
            valid = expected("", measured := metrics_of(component("task", config.task)))
            if self.metric.name not in measured:
                raise where.error(("metric",), f"metric {self.metric.name}: {config.task} has no such; {valid}")

    def _check_method(self) -> None:
        """Whether every entry fits the method."""
        for path, parameters in self._given():
            for name, parameter in parameters.items():
                here = (*path, name)
                if self.method == "grid" and parameter.grid is None:
                    raise self._source.error(
                        here,
                        f"{name!r}: the values of {parameter.kind} cannot be listed, and a grid needs {{value: x}} or "
                        "{values: [x, ...]}; or use method: random",
                    )
                if self.method != "random" and parameter.probabilities is not None:
                    raise self._source.error(here, f"{name!r}: 'probabilities' are for method: random only")
                if self.method == "bayes" and name == "seed":
                    raise self._source.error(here, "'seed' is not searched; use seeds")

    def _check_cap(self) -> None:
        """Whether the number of trials is known and can be kept."""
        seeds = len(self.seeds)
        if self.run_cap is None and self.method != "grid":
            raise self._source.error(
                ("method",), f"method {self.method} needs 'run_cap', the number of trials; it would never end"
            )
        if self.run_cap is not None and self.run_cap % seeds:
            low = self.run_cap - self.run_cap % seeds
            raise self._source.error(
                ("run_cap",), f"run_cap: {self.run_cap} is no multiple of the {seeds} seeds; use {low or seeds} or "
                f"{low + seeds}"
            )  # fmt: skip
        count = self.run_cap or sum(
            math.prod(len(parameter.grid or ()) for parameter in space.values()) * (1 if "seed" in space else seeds)
            for space in self.space
        )
        if count > MAX_TRIALS:
            raise self._source.error((), f"{count} trials; a sweep has at most {MAX_TRIALS}")

    @property
    def corners(self) -> list[TrialConfig]:
        """What stands for the configs of a bayes sweep, whose points are not known yet: the ends of every range."""
        if self.method != "bayes":
            return []
        made = []
        for index, space in enumerate(self.space):
            middle = {name: parameter.at(0.5) for name, parameter in space.items()}
            if {"lr", "lr_min"} <= space.keys():  # which are checked against each other
                values = {**middle, "lr": space["lr"].at(1e-6), "lr_min": space["lr_min"].at(1 - 1e-6)}
                made.append(self._member(index, {**values, "seed": self.seeds[0]}).config)
            for name, parameter in space.items():
                ends = parameter.grid if parameter.kind == "categorical" else None
                for value in ends or [parameter.at(1e-6), parameter.at(1 - 1e-6)]:
                    values = {**middle, name: value, "seed": self.seeds[0]}
                    made.append(self._member(index, values).config)
        return made

    def _given(self) -> Iterator[tuple[KeyPath, Parameters]]:
        yield ("parameters",), self.parameters
        for index, variant in enumerate(self.variants):
            yield ("variants", index), variant


def _words(model: BaseModel) -> str:
    return " ".join(f"{name}={value}" for name, value in model.model_dump(exclude_none=True).items())


def _validation_error(error: ValidationError, where: Source) -> SpecError:
    first = error.errors()[0]
    path: KeyPath = first["loc"]
    known: Sequence[str] = []
    if first["type"] == "extra_forbidden":
        models: dict[str, type[BaseModel]] = {"launch": Launch, "metric": Metric, "early_terminate": Hyperband}
        known = list(models[str(path[0])].model_fields)
        return where.error(path, f"unknown key {brief(path[-1])} under {path[0]!r}; {expected(path[-1], known)}")
    if path[:2] == ("launch", "stack"):
        return where.error(
            path,
            f"launch.stack: expected auto or a number of trials from 1 to {MAX_STACK}, not {brief(first['input'])}",
        )
    name = ".".join(str(part) for part in path)
    got = "" if first["type"] == "missing" else f" (got {brief(first['input'])})"
    return where.error(path, f"{name}: {first.get('ctx', {}).get('error') or first['msg']}{got}")
