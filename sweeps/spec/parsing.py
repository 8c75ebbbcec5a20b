"""The entries of a spec's `parameters`, `variants`, `rename` and `seeds`, read with the line of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, get_args

from pydantic import ValidationError

from polysweep.sweeps.spec.parameter import Distribution, Parameter
from polysweep.sweeps.spec.problems import Problems
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source, kind_of
from polysweep.trainer.config import OPTION_FIELDS, TrialConfig
from polysweep.trainer.errors import expected
from polysweep.trainer.history import METRICS
from polysweep.trainer.text import brief

Parameters = dict[str, Parameter]
MAX_TRIALS: Final = 1_000_000
_FORMS: Final = "expected {value: x}, {values: [x, ...]}, {min: a, max: b} or a distribution"


class Written(NamedTuple):
    """A parameter as the file has it: in which part, under which name, what it is here, and the entry."""

    part: KeyPath
    foreign: str
    name: str
    entry: Any


@dataclass
class Reading:
    """How the parameters of one file are read, and what was met on the way."""

    rename: Mapping[str, str]  # foreign names to ours
    problems: Problems
    unknown: dict[str, KeyPath] = field(default_factory=dict)  # names that mean nothing here, and where they are
    names: dict[str, str] = field(default_factory=dict)  # by the file's name of a parameter ours
    used: set[str] = field(default_factory=set)  # the names that `rename` has changed
    written: list[Written] = field(default_factory=list)  # all entries, in the file's order

    def ours(self, foreign: str, otherwise: str) -> str:
        """Our name of a parameter, `otherwise` if the file gives it none."""
        if foreign not in self.rename:
            return otherwise
        self.used.add(foreign)
        return self.rename[foreign]


def is_parameter(name: str) -> bool:
    """Whether a name is a field of a config or, as `model_options.hidden`, an option."""
    field_name, dot, option = name.partition(".")
    return field_name in TrialConfig.model_fields and (not dot or (field_name in OPTION_FIELDS and option != ""))


def read_rename(data: Any, problems: Problems, metric: object = None) -> dict[str, str]:
    """Foreign names to ours: of parameters, options and the metric, which the file calls `metric`."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        problems.add(("rename",), f"'rename' must map foreign parameter names to ours, not {kind_of(data)}")
        return {}
    for foreign, name in data.items():
        if not isinstance(name, str) or not (is_parameter(name) or name in METRICS or foreign == metric):
            names = expected(name, TrialConfig.model_fields)
            problems.add(("rename", foreign), f"rename: unknown parameter {brief(name)}; {names}")
    return {foreign: name for foreign, name in data.items() if isinstance(name, str)}


def read_parameters(data: Any, path: KeyPath, reading: Reading) -> Parameters:
    """Entries by our names, options as `model_options.hidden`; those of W&B's nested `parameters` as `outer.inner`."""
    problems = reading.problems
    if data is None and path == ("parameters",):
        problems.add(path, "'parameters' is missing or empty")
        return {}
    if not isinstance(data, dict):
        problems.add(path, f"must be a mapping from parameter to {{value: ...}}, not {kind_of(data)}")
        return {}
    parsed: Parameters = {}
    for foreign, name, entry, here in _flattened(data, path, reading):
        reading.names[foreign] = name
        reading.written.append(Written(path, foreign, name, entry))
        problems.where.put((*path, name), here)
        if not is_parameter(name):
            reading.unknown.setdefault(foreign, here)
        elif name in parsed:
            problems.add(here, f"{name!r} is given twice, under its own name and renamed")
        else:
            with problems.collecting():
                parsed[name] = _entry(name, entry, here, problems.where)
    return {name: entry for name, entry in parsed.items() if not is_not_given(name, entry)}


def _flattened(
    data: Mapping[str, Any], path: KeyPath, reading: Reading, outer: tuple[str, str] = ("", "")
) -> Iterator[tuple[str, str, Any, KeyPath]]:
    """The file's name, our name, entry and place of every parameter; `outer` has both names of what it is nested in."""
    for key, entry in data.items():
        foreign, default = (f"{name}.{key}" if name else key for name in outer)
        name, here = reading.ours(foreign, default), (*path, key)
        if not isinstance(entry, dict) or entry.keys() != {"parameters"}:
            yield foreign, name, entry, here
        elif isinstance(entry["parameters"], dict):
            yield from _flattened(entry["parameters"], (*here, "parameters"), reading, (foreign, name))
        else:
            what = kind_of(entry["parameters"])
            reading.problems.add(here, f"{name!r}: 'parameters' must be a mapping of options, not {what}")


def is_not_given(name: str, entry: Parameter) -> bool:
    """Whether an entry is `{value: null}` of a config field, which gives it no value; of an option it is a value."""
    return entry.grid == [None] and name.partition(".")[0] == name


def _entry(name: str, entry: Any, here: KeyPath, where: Source) -> Parameter:
    """One entry, with errors at its line."""
    if not isinstance(entry, dict):
        raise where.error(here, f"{name!r}: {_FORMS}, not {brief(entry)}")
    values = entry.get("values", [0])
    if not isinstance(values, list) or not values:
        raise where.error(here, f"{name!r}: 'values' must be a list with at least one value, not {brief(values)}")
    kind = entry.get("distribution", "uniform")
    if kind not in get_args(Distribution):
        raise where.error(
            here, f"{name!r}: distribution {brief(kind)} is not supported; {expected(kind, get_args(Distribution))}"
        )
    try:
        return Parameter.model_validate(entry)
    except ValidationError as error:
        raise where.error(here, f"{name!r}: {_reason(error, entry)}") from None


def _reason(error: ValidationError, entry: Mapping[str, Any]) -> str:
    """Why pydantic refuses an entry, with the keys that it has."""
    first = error.errors()[0]
    if first["type"] == "extra_forbidden":
        key = first["loc"][0]
        return f"unknown key {brief(key)}; {expected(key, Parameter.model_fields)}"
    cause = first.get("ctx", {}).get("error")
    at = f"{first['loc'][0]}: " if first["loc"] else ""
    got = "" if cause else f" (got {brief(first['input'])})"
    return f"{at}{cause or first['msg']}{got}; given: {', '.join(entry) or 'nothing'}; {_FORMS}"


def read_variants(data: Any, reading: Reading) -> list[Parameters]:
    """Every variant's entries; if there are no variants, one without entries."""
    if data is None:
        return [{}]
    if not isinstance(data, list) or not data:
        what = kind_of(data)
        reading.problems.add(("variants",), f"'variants' must be a list with at least one mapping, not {what}")
        return [{}]
    return [read_parameters(variant, ("variants", index), reading) for index, variant in enumerate(data)]


def read_seeds(data: Mapping[str, Any], parameters: Sequence[Parameters], where: Source) -> list[int]:
    """`seeds: 3` is 0, 1, 2; a list is itself."""
    seeds = data.get("seeds", 1)
    if "seeds" in data and any("seed" in part for part in parameters):
        raise where.error(("seeds",), "'seeds' beside the parameter 'seed': give one of them")
    if _is_whole(seeds) and seeds > MAX_TRIALS:
        raise where.error(("seeds",), f"seeds: {brief(seeds)} seeds; a sweep has at most {MAX_TRIALS} trials")
    if _is_whole(seeds) and seeds >= 1:
        return list(range(seeds))
    if are_seeds(seeds):
        return list(seeds)
    raise where.error(
        ("seeds",), f"seeds: must be a number >= 1 or a list of distinct seeds >= 0 and < 2^63, not {brief(seeds)}"
    )


def are_seeds(values: Any) -> bool:
    """Whether these are distinct seeds."""
    are_valid = isinstance(values, list) and all(_is_whole(value) and 0 <= value < 2**63 for value in values)
    return bool(values) and are_valid and len(set(values)) == len(values)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
