"""The entries of a spec's `parameters`, `variants`, `rename` and `seeds`, read with the line of what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import ValidationError

from polysweep.sweeps.spec.parameter import Distribution, Parameter
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source, kind_of
from polysweep.trainer.config import OPTION_FIELDS, TrialConfig
from polysweep.trainer.errors import expected
from polysweep.trainer.text import brief

Parameters = dict[str, Parameter]
MAX_TRIALS: Final = 1_000_000
_FORMS: Final = "expected {value: x}, {values: [x, ...]}, {min: a, max: b} or a distribution"


def read_rename(data: Any, where: Source) -> dict[str, str]:
    """Foreign names to ours."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise where.error(("rename",), f"'rename' must map foreign parameter names to ours, not {kind_of(data)}")
    for foreign, name in data.items():
        if not isinstance(name, str) or name not in TrialConfig.model_fields:
            raise where.error(
                ("rename", foreign),
                f"rename: unknown parameter {brief(name)}; {expected(name, TrialConfig.model_fields)}",
            )
    return dict(data)


def read_parameters(data: Any, path: KeyPath, where: Source, rename: Mapping[str, str]) -> Parameters:
    """Entries by our names, options as `model_options.hidden`."""
    if data is None and path == ("parameters",):
        raise where.error(path, "'parameters' is missing or empty")
    if not isinstance(data, dict):
        raise where.error(path, f"must be a mapping from parameter to {{value: ...}}, not {kind_of(data)}")
    parsed: Parameters = {}
    for foreign, entry in data.items():
        here = (*path, foreign)
        name = rename.get(foreign, foreign)
        field, dot, _ = name.partition(".")
        if field not in TrialConfig.model_fields or (dot and field not in OPTION_FIELDS):
            raise where.error(here, f"unknown parameter {brief(name)}; {expected(name, TrialConfig.model_fields)}")
        if name in parsed:
            raise where.error(here, f"{name!r} is given twice, under its own name and renamed")
        if field in OPTION_FIELDS and isinstance(entry, dict) and entry.keys() == {"parameters"}:
            inside = entry["parameters"]
            if not isinstance(inside, dict):
                raise where.error(here, f"{name!r}: 'parameters' must be a mapping of options, not {kind_of(inside)}")
            parsed |= {
                f"{name}.{option}": _entry(f"{name}.{option}", value, (*here, "parameters", option), where)
                for option, value in inside.items()
            }
        else:
            parsed[name] = _entry(name, entry, here, where)
    return {name: entry for name, entry in parsed.items() if not is_not_given(name, entry)}


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


def read_variants(data: Any, where: Source, rename: Mapping[str, str]) -> list[Parameters]:
    """Every variant's entries; if there are no variants, one without entries."""
    if data is None:
        return [{}]
    if not isinstance(data, list) or not data:
        raise where.error(("variants",), f"'variants' must be a list with at least one mapping, not {kind_of(data)}")
    return [read_parameters(variant, ("variants", index), where, rename) for index, variant in enumerate(data)]


def read_seeds(data: Mapping[str, Any], where: Source) -> list[int]:
    """`seeds: 3` is 0, 1, 2; a list is itself."""
    seeds = data.get("seeds", 1)
    variants = data.get("variants") or [{}]
    if "seeds" in data and any("seed" in part for part in (data.get("parameters") or {}, *variants)):
        raise where.error(("seeds",), "'seeds' beside the parameter 'seed': give one of them")
    if _is_whole(seeds) and seeds > MAX_TRIALS:
        raise where.error(("seeds",), f"seeds: {brief(seeds)} seeds; a sweep has at most {MAX_TRIALS} trials")
    if _is_whole(seeds) and seeds >= 1:
        return list(range(seeds))
    if isinstance(seeds, list) and _are_seeds(seeds):
        return seeds
    raise where.error(
        ("seeds",), f"seeds: must be a number >= 1 or a list of distinct seeds >= 0 and < 2^63, not {brief(seeds)}"
    )


def _are_seeds(values: Sequence[Any]) -> bool:
    are_valid = all(_is_whole(value) and 0 <= value < 2**63 for value in values)
    return bool(values) and are_valid and len(set(values)) == len(values)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
