"""The sweep spec: the W&B sweep format plus variants, tuned parameters and seeds; from YAML to trial configs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from trainer.config import TrialConfig
from trainer.history import METRICS
from trainer.registry import ConfigError, UserError, expected

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NOT_YET: Final = (
    "early_terminate",
    "run_cap",
    "rename",
    "program",
    "command",
    "project",
    "entity",
    "description",
)
Path_ = tuple[str | int, ...]


class SpecError(UserError):
    """A sweep spec that cannot be used; the message starts with `file:line:`."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Metric(_Strict):
    """What selects the best epoch and the tuned parameters."""

    name: Literal[METRICS]  # type: ignore[valid-type]
    goal: Literal["maximize", "minimize"]


class Launch(_Strict):
    """How trials are run; nothing here changes what a trial is, except that `stack` fixes K at its first start."""

    stack: Literal["auto"] | Annotated[int, Field(ge=1, le=4096)] = "auto"  # trials per stack, K
    cpus: Annotated[int, Field(ge=1)] = 1  # cores, and torch threads, per stack
    gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0  # GPUs per stack; a fraction shares one
    checkpoint_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0  # least time between checkpoints
    keep: Literal["last", "best", "none"] = "last"  # the checkpoint that stays after the end; best: by the metric


@dataclass(frozen=True)
class SweepTrial:
    """A trial as one sweep sees it: its config, and its cell (the varying parameters, without tuned ones and seed)."""

    config: TrialConfig
    trial_id: str
    cell: Mapping[str, Any]


class SweepSpec(_Strict):
    """A sweep: every combination of `parameters`, times one of `variants`, times the seeds.

    `SweepSpec.load` reads a file, `SweepSpec.parse` a text; both raise `SpecError` with file and line.
    """

    name: str
    method: Literal["grid"] = "grid"
    metric: Metric = Metric(name="test/top1", goal="maximize")
    parameters: dict[str, list[Any]]
    variants: list[dict[str, list[Any]]] = [{}]
    tuned: list[str] = []
    seeds: list[int] = [0]
    launch: Launch = Launch()

    _source: _Source = PrivateAttr()
    _text: str = PrivateAttr(default="")

    @classmethod
    def load(cls, path: str | Path) -> SweepSpec:
        """Read a spec file; a missing name is the file's stem."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise SpecError(f"{path}: no such file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{path}: cannot be read: {error}") from None
        return cls.parse(text, str(path), path.stem)

    @classmethod
    def parse(cls, text: str, source: str, stem: str = "sweep") -> SweepSpec:
        """Validate a spec's text; `source` is what its errors name, `stem` the name if it gives none."""
        data, lines = _read_yaml(text, source)
        where = _Source(source, lines)
        if not isinstance(data, dict):
            raise where.error((), f"a sweep spec is a mapping, not {_kind(data)}")
        for key in data:
            if key not in cls.model_fields:
                note = "not supported yet" if key in NOT_YET else "unknown key"
                raise where.error((key,), f"{note}: {key!r}; {expected(key, cls.model_fields)}")
        values = {
            "name": stem,
            **data,
            "parameters": _parameters(data.get("parameters"), ("parameters",), where),
            "variants": _variants(data.get("variants"), where),
            "seeds": _seeds(data, where),
        }
        if values.get("method", "grid") in ("random", "bayes"):
            raise where.error(("method",), f"method {values['method']!r} is not supported yet; use 'grid'")
        try:
            spec = cls.model_validate(values)
        except ValidationError as error:
            raise _validation_error(error, where) from None
        spec._source, spec._text = where, text
        spec._check()
        return spec

    @property
    def text(self) -> str:
        """The file's text, as written."""
        return self._text

    @cached_property
    def trials(self) -> list[SweepTrial]:
        """The trials in the file's order: variants, then parameters as written, then seeds.

        Raises `SpecError` with the line of the parameter that makes a config invalid.
        """
        found: dict[str, TrialConfig] = {}
        for index, values in self._combinations():
            config = self._config(index, values)
            if found.setdefault(config.trial_id, config) is not config:
                raise self._source.error(
                    ("variants", index), f"{values} is listed twice: its config equals that of an earlier one"
                )
        keys = self._cell_fields(list(found.values()))
        return [
            SweepTrial(config, trial_id, {k: v for k in keys if (v := getattr(config, k)) not in (None, {})})
            for trial_id, config in found.items()
        ]

    def _cell_fields(self, configs: Sequence[TrialConfig]) -> list[str]:
        """The fields that tell this sweep's cells apart, those of the file first.

        They have two values or more where they apply, and are neither tuned nor the seed.
        """
        written = [*self.parameters, *(name for variant in self.variants for name in variant)]
        names = [n for n in dict.fromkeys([*written, *TrialConfig.model_fields]) if n not in (*self.tuned, "seed")]
        return [n for n in names if len({repr(v) for c in configs if (v := getattr(c, n)) is not None}) > 1]

    def _combinations(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, variant in enumerate(self.variants):
            grid = {**self.parameters, **variant}
            if "seed" not in grid:
                grid["seed"] = self.seeds
            for choice in itertools.product(*grid.values()):
                yield index, dict(zip(grid, choice, strict=True))

    def _config(self, variant: int, values: Mapping[str, Any]) -> TrialConfig:
        try:
            return TrialConfig.parse(values)
        except ConfigError as error:
            key = error.key.split(".")[0]
            inside = ("variants", variant) if key in self.variants[variant] else ("parameters",)
            if key not in values:  # missing: the variant is where it belongs
                inside = ("variants", variant)
            path: Path_ = (*inside, key)
            raise self._source.error(path, str(error)) from None

    def _check(self) -> None:
        where = self._source
        if not NAME_PATTERN.fullmatch(self.name):
            raise where.error(
                ("name",),
                f"sweep name {self.name!r}: use 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
            )
        known = {*self.parameters, *(name for variant in self.variants for name in variant)}
        for index, name in enumerate(self.tuned):
            if name not in known or name == "seed":
                raise where.error(
                    ("tuned", index),
                    f"tuned: {name!r} is no parameter of this sweep; {expected(name, known)}",
                )
        for index, variant in enumerate(self.variants):
            for name in variant.keys() & self.parameters.keys():
                raise where.error(
                    ("variants", index, name),
                    f"{name!r} is both in 'parameters' and in a variant; give it once",
                )
        for trial in self.trials:
            if self.metric.name.startswith("val/") and not trial.config.val_fraction:
                raise where.error(("metric",), f"{self.metric.name} needs val_fraction > 0: nothing is held out")


class _Source:
    """A spec's file name and the line of each of its keys."""

    def __init__(self, name: str, lines: Mapping[Path_, int]) -> None:
        self._name = name
        self._lines = lines

    def error(self, path: Path_, message: str) -> SpecError:
        """An error at the line of `path`, or of the nearest enclosing key that the file has."""
        while path not in self._lines and path:
            path = path[:-1]
        return SpecError(f"{self._name}:{self._lines.get(path, 1)}: {message}")


class _Loader(yaml.SafeLoader):
    """`safe_load`, except that 1e-4 is a number, as in YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def read_scalar(text: str) -> Any:
    """A value as a spec file would read it: for KEY=VALUE on the command line."""
    return yaml.load(text, _Loader)


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`["rho=0.1", "model_options.hidden=32"]` -> a config's values, read as a spec file would."""
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UserError(f"{setting!r}: expected KEY=VALUE, for example rho=0.1")
        field, dot, option = key.partition(".")
        target = values.setdefault(field, {}) if dot else values
        if (option or field) in target:
            raise UserError(f"{key}: given twice")
        try:
            target[option or field] = read_scalar(text)
        except yaml.YAMLError:
            raise UserError(f"{setting!r}: the value is not valid YAML") from None
    return values


def _read_yaml(text: str, source: str) -> tuple[Any, dict[Path_, int]]:
    """The data and the 1-based line of every key and list item."""
    loader = _Loader(text)
    lines: dict[Path_, int] = {}
    try:
        node = loader.get_single_node()
        if node is None:
            return None, lines
        _walk(node, (), lines, source)
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError(f"{source}:{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{source}:1: not valid YAML: {error}") from None
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: Path_, lines: dict[Path_, int], source: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, key.value)
            line = key.start_mark.line + 1
            if here in lines:
                raise SpecError(f"{source}:{line}: key {key.value!r} is given twice (first on line {lines[here]})")
            lines[here] = line
            _walk(value, here, lines, source)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines, source)


def _parameters(given: Any, path: Path_, where: _Source) -> dict[str, list[Any]]:
    """`{name: {value: x}}` or `{name: {values: [...]}}` -> `{name: [...]}`."""
    if given is None and path == ("parameters",):
        raise where.error(path, "'parameters' is missing or empty")
    if not isinstance(given, dict):
        raise where.error(path, f"must be a mapping from parameter to {{value: ...}}, not {_kind(given)}")
    parsed = {}
    for name, entry in given.items():
        here = (*path, name)
        if name not in TrialConfig.model_fields:
            raise where.error(here, f"unknown parameter {name!r}; {expected(name, TrialConfig.model_fields)}")
        if not isinstance(entry, dict) or len(entry) != 1 or not entry.keys() <= {"value", "values"}:
            keys = ", ".join(map(str, entry)) if isinstance(entry, dict) else repr(entry)
            raise where.error(here, f"{name!r}: a grid needs either {{value: x}} or {{values: [x, ...]}}, not {keys}")
        values = entry["values"] if "values" in entry else [entry["value"]]
        if not isinstance(values, list) or not values:
            raise where.error(here, f"{name!r}: 'values' must be a list with at least one value, not {values!r}")
        for index, value in enumerate(values):
            if value in values[:index]:
                raise where.error((*here, "values", index), f"{name!r}: {value!r} is listed twice")
        parsed[name] = values
    return parsed


def _variants(given: Any, where: _Source) -> list[dict[str, list[Any]]]:
    if given is None:
        return [{}]
    if not isinstance(given, list) or not given:
        raise where.error(("variants",), f"'variants' must be a list with at least one mapping, not {_kind(given)}")
    return [_parameters(variant, ("variants", index), where) for index, variant in enumerate(given)]


def _seeds(data: Mapping[str, Any], where: _Source) -> list[int]:
    """`seeds: 3` is 0, 1, 2; a list is itself."""
    seeds = data.get("seeds", 1)
    if "seeds" in data and "seed" in (data.get("parameters") or {}):
        raise where.error(("seeds",), "'seeds' beside 'parameters.seed': give one of them")
    valid = isinstance(seeds, int) and not isinstance(seeds, bool) and seeds >= 1
    if valid:
        return list(range(seeds))
    if (
        isinstance(seeds, list)
        and seeds
        and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds)
        and len(set(seeds)) == len(seeds)
    ):
        return seeds
    raise where.error(("seeds",), f"seeds: must be a number >= 1 or a list of distinct seeds >= 0, not {seeds!r}")


def _validation_error(error: ValidationError, where: _Source) -> SpecError:
    first = error.errors()[0]
    path: Path_ = first["loc"]
    known: Sequence[str] = []
    if first["type"] == "extra_forbidden":
        known = list(Launch.model_fields if path[0] == "launch" else Metric.model_fields)
        return where.error(path, f"unknown key {path[-1]!r} under {path[0]!r}; {expected(path[-1], known)}")
    name = ".".join(str(part) for part in path if part not in ("constrained-int", "int", "literal['auto']"))
    got = "" if first["type"] == "missing" else f" (got {first['input']!r})"
    return where.error(path, f"{name}: {first['msg']}{got}")


def _kind(value: Any) -> str:
    return "an empty file" if value is None else f"a {type(value).__name__}: {str(value)[:40]!r}"
