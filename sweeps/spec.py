"""The sweep spec: the W&B sweep format plus variants, tuned parameters and seeds; from YAML to trial configs."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from trainer.config import TrialConfig
from trainer.history import METRICS
from trainer.registry import ConfigError, Count, UserError, expected, number

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
Amount = Annotated[float, BeforeValidator(number), Field(ge=0, allow_inf_nan=False)]
MAX_TRIALS: Final = 1_000_000


class SpecError(UserError):
    """A sweep spec that cannot be used; the message starts with `file:line:`."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Metric(_Strict):
    """What selects the best epoch and the tuned parameters."""

    name: Literal[METRICS]  # type: ignore[valid-type]
    goal: Literal["maximize", "minimize"]

    @property
    def note(self) -> str:
        """What has to stand beside a number that it selects."""
        return " (selected on test)" if self.name.startswith("test/") else ""


class Launch(_Strict):
    """How trials are run; nothing here changes what a trial is, except that `stack` fixes K at its first start."""

    stack: Literal["auto"] | Count = "auto"  # trials per stack, K
    cpus: Count = 1  # cores, and torch threads, per stack
    gpus: Amount = 0  # GPUs per stack; a fraction shares one
    data_dir: Annotated[str, Field(min_length=1)] | None = None  # folder of the data sets
    checkpoint_seconds: Amount = 1.0  # least time between checkpoints
    keep: Literal["last", "best", "none"] = "last"  # the checkpoint that stays after the end; best: by the metric

    @property
    def device(self) -> str:
        """What a stack's tensors lie on."""
        return "cuda" if self.gpus else "cpu"


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
        flat = {trial_id: config.flat() for trial_id, config in found.items()}
        keys = self._cell_fields(list(flat.values()))
        return [
            SweepTrial(config, trial_id, {k: flat[trial_id][k] for k in keys if k in flat[trial_id]})
            for trial_id, config in found.items()
        ]

    def _cell_fields(self, flat: Sequence[Mapping[str, Any]]) -> list[str]:
        """The fields (options as `model_options.hidden`) that tell this sweep's cells apart, those of the file first.

        They have two values or more where they apply, and are neither tuned nor the seed.
        """
        written = [*self.parameters, *(name for variant in self.variants for name in variant)]
        names = dict.fromkeys([*written, *(name for values in flat for name in values)])
        free = [n for n in names if n.partition(".")[0] not in (*self.tuned, "seed")]
        return [n for n in free if len({values[n] for values in flat if n in values}) > 1]

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
        count = sum(
            math.prod(map(len, {**self.parameters, **variant, "seed": self.seeds}.values()))
            for variant in self.variants
        )
        if count > MAX_TRIALS:
            raise where.error((), f"{count} trials; a sweep has at most {MAX_TRIALS}")
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


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`["rho=0.1", "model_options.hidden=32"]` -> a config's values, read as a spec file would."""
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise UserError(f"{setting!r}: expected KEY=VALUE, for example rho=0.1")
        field, dot, option = key.partition(".")
        target = values.setdefault(field, {}) if dot else values
        if not isinstance(target, dict):
            raise UserError(f"{key}: {field} is given both as a whole and by option")
        if (option or field) in target:
            raise UserError(f"{key}: given twice")
        try:
            target[option or field], _ = _read_yaml(text, setting)
        except SpecError as error:
            raise UserError(str(error)) from None
        if target[option or field] is None:
            raise UserError(f"{setting!r}: the value is missing")
    return values


def _read_yaml(text: str, source: str) -> tuple[Any, dict[Path_, int]]:
    """The data and the 1-based line of every key and list item."""
    lines: dict[Path_, int] = {}
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, lines
        _walk(node, (), lines, source)
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError(f"{source}:{line}: not valid YAML: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SpecError(f"{source}:{line}: not valid YAML: character #x{error.character:04x}: {error.reason}") from None
    except SpecError:
        raise
    except RecursionError:
        raise SpecError(f"{source}:1: not valid YAML: nested too deeply") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:  # a tag or date that its value does not fit
        raise SpecError(f"{source}:1: not valid YAML: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()


def _walk(
    node: yaml.Node, path: Path_, lines: dict[Path_, int], source: str, above: tuple[yaml.Node, ...] = ()
) -> None:
    """Collect lines; refuse what YAML allows and a spec cannot mean."""
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if node in above:
        raise SpecError(f"{source}:{line}: an alias that contains itself")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                raise SpecError(f"{source}:{line}: keys are plain words, not {shown!r}")
            here = (*path, key.value)
            if here in lines:
                raise SpecError(f"{source}:{line}: key {key.value!r} is given twice (first on line {lines[here]})")
            lines[here] = line
            _walk(value, here, lines, source, (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines, source, (*above, node))
    elif node.tag == "tag:yaml.org,2002:int" and re.match(r"[-+]?0[0-9_]", str(node.value)):
        raise SpecError(f"{source}:{line}: {node.value}: YAML reads a leading zero as octal; write the number without")


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
            if value is None:
                raise where.error(here, f"{name!r}: a value is missing; leave the parameter out if it does not apply")
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
    variants = data.get("variants") or [{}]
    if "seeds" in data and any("seed" in part for part in (data.get("parameters") or {}, *variants)):
        raise where.error(("seeds",), "'seeds' beside the parameter 'seed': give one of them")
    valid = isinstance(seeds, int) and not isinstance(seeds, bool) and seeds >= 1
    if valid and seeds <= MAX_TRIALS:
        return list(range(seeds))
    if (
        isinstance(seeds, list)
        and seeds
        and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds)
        and len(set(seeds)) == len(seeds)
    ):
        return seeds
    raise where.error(
        ("seeds",), f"seeds: must be a number >= 1 or a list of distinct seeds >= 0, not {str(seeds)[:80]!r}"
    )


def _validation_error(error: ValidationError, where: _Source) -> SpecError:
    first = error.errors()[0]
    path: Path_ = first["loc"]
    known: Sequence[str] = []
    if first["type"] == "extra_forbidden":
        known = list(Launch.model_fields if path[0] == "launch" else Metric.model_fields)
        return where.error(path, f"unknown key {path[-1]!r} under {path[0]!r}; {expected(path[-1], known)}")
    if path[:2] == ("launch", "stack"):
        return where.error(path, f"launch.stack: expected auto or a number of trials >= 1, not {first['input']!r}")
    name = ".".join(str(part) for part in path)
    got = "" if first["type"] == "missing" else f" (got {first['input']!r})"
    return where.error(path, f"{name}: {first['msg']}{got}")


def _kind(value: Any) -> str:
    return "an empty file" if value is None else f"a {type(value).__name__}: {str(value)[:40]!r}"
