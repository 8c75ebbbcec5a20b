"""The sweep spec: the W&B sweep format plus variants, tuned parameters and seeds; from YAML to trials."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, WithJsonSchema

from sweeps.early import Hyperband
from sweeps.entries import MAX_TRIALS, Parameters, read_parameters, read_rename, read_seeds, read_variants
from sweeps.expand import SCALARS, Family, Point, SweepTrial, nested
from sweeps.search import Space, Suggestion, distinct_draws
from sweeps.source import KeyPath, Source, SpecError, kind_of, read_text, read_yaml
from trainer.config import TrialConfig
from trainer.history import METRICS
from trainer.options import MAX_STACK, Count, PathText, Width, number
from trainer.plugins import component, metrics_of
from trainer.registry import ConfigError, expected
from trainer.text import brief

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


class Metric(_Strict):
    """What selects the best epoch and the tuned parameters."""

    name: Literal[METRICS]  # type: ignore[valid-type]
    goal: Literal["maximize", "minimize"]
    target: Annotated[float, BeforeValidator(number), Field(allow_inf_nan=False)] | None = None
    """Once a trial reaches it, none is started any more."""

    @property
    def note(self) -> str:
        """What has to stand beside a number that it selects."""
        return " (selected on test)" if self.name.startswith("test/") else ""

    def is_reached(self, value: float | None) -> bool:
        """Whether the target is reached; never where there is none."""
        if self.target is None or value is None:
            return False
        return value >= self.target if self.goal == "maximize" else value <= self.target


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
        spec.__dict__.pop("trials", None)
        spec._suggestions = tuple(suggestions)
        return spec

    @cached_property
    def trials(self) -> list[SweepTrial]:
        """The trials in the file's order: variants, then parameters as written, then seeds.

        Of a random sweep in the order of the draws, of a bayes sweep those of the suggestions that are known. Raises
        `SpecError` with the line of the parameter that makes a config invalid.
        """
        found: dict[str, SweepTrial] = {}
        families: dict[tuple[Any, ...], Family] = {}
        for point in self._points():
            if self.run_cap is not None and len(found) >= self.run_cap:
                break
            for values in self._with_seeds(point):
                trial = self._member(families, point.variant, values)
                if found.setdefault(trial.trial_id, trial) is not trial:
                    raise self._source.error(
                        ("variants", point.variant),
                        f"{brief(values)} is listed twice: its config equals that of an earlier one",
                    )
        trials = list(found.values())[: self.run_cap]
        names = self._cell_fields(families.values(), trials)
        for family in families.values():
            family.set_cells(names)
        return trials

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

    def _member(self, families: dict[tuple[Any, ...], Family], variant: int, values: Mapping[str, Any]) -> SweepTrial:
        free = [name for name in values if name in SCALARS]
        key = (variant, *[repr(value) for name, value in values.items() if name not in SCALARS])
        try:
            family = families.get(key)
            if family is None:
                fixed = nested({name: value for name, value in values.items() if name not in SCALARS})
                first = {name: values[name] for name in free}
                family = families[key] = Family(fixed, first, variant, recorded=self._recorded)
            return family.member([values[name] for name in free])
        except ConfigError as error:
            raise self._source.error(self._place(error.key, variant, values), str(error)) from None

    def _place(self, name: str, variant: int, values: Mapping[str, Any]) -> KeyPath:
        """Where a field is given; one that is missing belongs into the variant."""
        key = name if name in values else name.split(".", maxsplit=1)[0]
        if key in self.variants[variant] or key not in values:
            return "variants", variant, key
        return "parameters", key

    def _cell_fields(self, families: Iterable[Family], trials: Sequence[SweepTrial]) -> list[str]:
        """The fields (options as `model_options.hidden`) that tell this sweep's cells apart, those of the file first.

        They have two values or more where they apply, and are neither tuned nor the seed.
        """
        found: dict[str, set[Any]] = {}
        members: dict[int, list[tuple[Any, ...]]] = {}
        for trial in trials:
            members.setdefault(id(trial.family), []).append(trial.choice)
        for family in families:
            if choices := members.get(id(family)):
                columns = dict(zip(family.names, map(set, zip(*choices, strict=True)), strict=True))
                for name, value in family.flat.items():
                    found.setdefault(name, set()).update(columns.get(name, {value}))
        written = [*self.parameters, *(name for variant in self.variants for name in variant)]
        tuned = {*self.tuned, "seed"}
        return [
            name
            for name in dict.fromkeys([*written, *found])
            if len(found.get(name, ())) > 1 and not {name, name.partition(".")[0]} & tuned
        ]

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
        checked = self.corners or [trial.config for trial in self.trials[:1]]
        families = {id(trial.family): trial.family.first for trial in self.trials}
        for config in [*checked, *families.values()]:
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
                made.append(self._member({}, index, {**values, "seed": self.seeds[0]}).config)
            for name, parameter in space.items():
                ends = parameter.grid if parameter.kind == "categorical" else None
                for value in ends or [parameter.at(1e-6), parameter.at(1 - 1e-6)]:
                    values = {**middle, name: value, "seed": self.seeds[0]}
                    made.append(self._member({}, index, values).config)
        return made

    def _given(self) -> Iterator[tuple[KeyPath, Parameters]]:
        yield ("parameters",), self.parameters
        for index, variant in enumerate(self.variants):
            yield ("variants", index), variant


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
