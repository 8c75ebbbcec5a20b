"""A W&B sweep file as a spec of ours: what has a meaning here under our names, the rest as comments that say why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from polysweep.sweeps.spec.conditional import as_variants
from polysweep.sweeps.spec.diagnosis import Diagnosis, choices_of, diagnose, flow, metric_remarks
from polysweep.sweeps.spec.fields import IGNORED, SpecFields
from polysweep.sweeps.spec.parsing import Written, is_parameter
from polysweep.sweeps.spec.proposals import in_our_case, meaning, metric_of
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import RecordedMetric
from polysweep.sweeps.spec.yaml_lines import Source, SpecError, kind_of, read_yaml
from polysweep.trainer.config import COMPONENT_FIELDS, OPTION_FIELDS
from polysweep.trainer.text import one_line

_ABOVE: Final = ("name", "description", "project", "entity", "method", "metric", "run_cap", "early_terminate")
_BELOW: Final = ("tuned", "seeds", "search_seed", "launch", "protocol", "replicate", "claims")


@dataclass
class Translation:
    """A translated file, and how many things are left to do: each is a comment in it."""

    text: str
    left: list[str]


@dataclass
class _Part:
    """The entries of `parameters` or of a variant, and comments in the place of those that mean nothing here."""

    entries: dict[str, Any] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)  # by entry, behind it
    comments: list[str] = field(default_factory=list)


def translate(text: str, source: str, stem: str, settings: Mapping[str, Any]) -> Translation:
    """The spec of a file; `settings` are parameters that it lacks, or that replace its own.

    Raises `SpecError` if the file is not YAML, or has no parameters.
    """
    data, lines = read_yaml(text, source)
    where = Source(source, lines)
    if not isinstance(data, dict) or not isinstance(data.get("parameters"), dict):
        what = kind_of(data.get("parameters") if isinstance(data, dict) else data)
        raise where.error(("parameters",), f"a sweep file has a mapping 'parameters', not {what}")
    if "count" in data and "run_cap" not in data and data.get("method") in ("random", "bayes"):
        data["run_cap"] = data["count"]
    diagnosis = diagnose(data, where, stem)
    parts = _parts(diagnosis, settings)
    head = [f"# From {one_line(source)}, by polysweep import."]
    above = [line for key in _ABOVE if key in data for line in _top_level(key, data, diagnosis)]
    body = ["parameters:", *_lines(parts[("parameters",)], "  "), *_variant_lines(data, parts)]
    below = [line for key in _BELOW if key in data for line in _top_level(key, data, diagnosis)]
    dropped = [_comment(f"{key}: {flow(data[key])}", _reason(key)) for key in data if _reason(key)]
    whole = [*above, *body, *below, *dropped]
    left = _left("\n".join(whole) + "\n", stem)
    return Translation("\n".join([*head, *(f"# To do: {one}" for one in left), *whole]) + "\n", left)


def _parts(diagnosis: Diagnosis, settings: Mapping[str, Any]) -> dict[tuple[str | int, ...], _Part]:
    """By place in the file its parts, conditional parameters in variants."""
    parts: dict[tuple[str | int, ...], _Part] = {("parameters",): _Part()}
    shared = parts[("parameters",)]
    for one in diagnosis.read.reading.written:
        _put(parts.setdefault(one.part, _Part()), one, settings)
    for name, value in settings.items():
        shared.entries[name] = {"value": value}
        shared.remarks.setdefault(name, "as told")
    for kind in COMPONENT_FIELDS:
        if all(kind not in part.entries for part in parts.values()):
            shared.comments.insert(
                0, f"# {kind}: {{value: ...}}  # required: {', '.join(choices_of(kind))}, or your own"
            )
    variants = _split(parts, diagnosis)
    if variants:
        for name in {name for variant in variants for name in variant}:
            shared.entries.pop(name, None)
        parts = {("parameters",): shared}
        parts |= {("variants", index): _Part(dict(variant)) for index, variant in enumerate(variants)}
    return parts


def _put(part: _Part, one: Written, settings: Mapping[str, Any]) -> None:
    """An entry under our name, or a comment in its place."""
    if not is_parameter(one.name):
        same = meaning(one.foreign)
        reason = "no field or option is like it" if same is None else f"means {same}, which the file gives too"
        part.comments.append(_comment(f"{one.foreign}: {flow(one.entry)}", reason))
    elif one.name in part.entries:
        part.comments.append(_comment(f"{one.foreign}: {flow(one.entry)}", f"{one.name} is given already"))
    elif one.entry == {"value": None} and "." not in one.name:
        part.comments.append(_comment(f"{one.foreign}: {flow(one.entry)}", "null gives no value"))
    elif one.name in settings:
        part.remarks[one.name] = f"as told; {one.foreign}: {flow(one.entry)} in the file"
    else:
        entry = _in_our_case(one.name, one.entry)
        part.entries[one.name] = entry
        changes = [one.foreign] if one.foreign != one.name else []
        changes += [flow(one.entry)] if entry != one.entry else []
        if changes:
            part.remarks[one.name] = ": ".join(changes)


def _in_our_case(name: str, entry: Any) -> Any:
    """An entry with the names of components in the case that they have here."""
    if name not in COMPONENT_FIELDS or not isinstance(entry, dict):
        return entry
    changed = dict(entry)
    if "value" in entry:
        changed["value"] = in_our_case(name, entry["value"])
    if isinstance(entry.get("values"), list):
        changed["values"] = [in_our_case(name, value) for value in entry["values"]]
    return changed


def _split(parts: Mapping[tuple[str | int, ...], _Part], diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """The variants that conditional parameters need; none if there are none, or if something else is wrong."""
    if diagnosis.fields is None:
        return []
    values = diagnosis.fields.model_dump(exclude={"parameters", "variants", "rename", "metric", "tuned"})
    values["parameters"] = parts[("parameters",)].entries
    values["variants"] = [part.entries for path, part in parts.items() if path != ("parameters",)] or [{}]
    try:
        return as_variants(SpecFields.model_validate(values))
    except ValueError:  # of an entry that is wrong, which is left to do
        return []


def _variant_lines(data: Mapping[str, Any], parts: Mapping[tuple[str | int, ...], _Part]) -> list[str]:
    variants = [part for path, part in parts.items() if path != ("parameters",)]
    if not variants:
        return []
    remark = "" if "variants" in data else "  # each has what its own parts read"
    if remark and data.get("method", "grid") != "grid":
        remark += "; a search draws each equally often"
    lines = [f"variants:{remark}"]
    for variant in variants:
        lines += [f"  - {flow(variant.entries)}", *(f"    {comment}" for comment in variant.comments)]
    return lines


def _lines(part: _Part, indent: str) -> Iterator[str]:
    whole = {name for name in part.entries if name in OPTION_FIELDS and _is_nested_too(name, part)}
    for name, entry in part.entries.items():
        remark = f"  # {part.remarks[name]}" if name in part.remarks else ""
        if "." in name or name in whole:
            continue
        yield f"{indent}{name}: {flow(entry)}{remark}"
    by_kind: dict[str, list[str]] = {}
    for name in part.entries:
        if "." in name:
            by_kind.setdefault(name.partition(".")[0], []).append(name)
    for kind, names in by_kind.items():
        yield f"{indent}{kind}:"
        yield f"{indent}  parameters:"
        for name, value in part.entries[kind]["value"].items() if kind in whole else ():
            yield f"{indent}    {flow(name)}: {flow({'value': value})}"
        for name in names:
            remark = f"  # {part.remarks[name]}" if name in part.remarks else ""
            yield f"{indent}    {flow(name.partition('.')[2])}: {flow(part.entries[name])}{remark}"
    for comment in part.comments:
        yield f"{indent}{comment}"


def _is_nested_too(kind: str, part: _Part) -> bool:
    """Whether a file gives options both as one value and by name, which is one mapping here."""
    value = part.entries[kind].get("value") if isinstance(part.entries[kind], dict) else None
    return isinstance(value, dict) and any(name.startswith(f"{kind}.") for name in part.entries)


def _top_level(key: str, data: Mapping[str, Any], diagnosis: Diagnosis) -> Iterator[str]:
    """A key besides the parameters, with what has another name here."""
    value = data[key]
    if key == "metric" and isinstance(value, dict) and not diagnosis.is_metric_ours:
        default = RecordedMetric()
        yield _comment(f"metric: {flow(value)}", f"not measured here; the default is {default.name}, {default.goal}")
    elif key == "metric" and isinstance(value, dict):
        values = diagnosis.read.values["metric"]
        kept = {name: values[name] for name in ("name", "goal", "target") if name in values}
        was = metric_of(data)
        remarks = [f"{was} in the file"] if was != kept.get("name") else []
        remarks += ["goal: minimize is W&B's default"] if value.get("goal") is None else []
        yield f"metric: {flow(kept)}" + (f"  # {'; '.join(remarks)}" if remarks else "")
        yield from (f"# {one}" for one in metric_remarks(diagnosis))
    elif key in ("tuned", "replicate", "claims"):
        yield f"{key}: {flow(diagnosis.read.values.get(key, value))}"
    else:
        yield f"{key}: {flow(value)}"


def _reason(key: str) -> str:
    """Why a key of the file is a comment in the spec; empty if it is not."""
    if key in (*_ABOVE, *_BELOW, "parameters", "variants", "rename"):
        return ""
    if key in IGNORED:
        return "polysweep has its own trainer, searches and cluster"
    return "no key of a spec" if key != "count" else "the number of trials is run_cap"


def _comment(what: str, why: str) -> str:
    return f"# {one_line(what)}  # {why}"


def _left(text: str, stem: str) -> list[str]:
    """What a translated text still lacks, a line each."""
    try:
        SweepSpec.parse(text, "spec", stem)
    except SpecError as error:
        lines = [line for line in error.shown.splitlines() if line.startswith("spec:") and " problems" not in line]
        return [line.partition(": ")[2] for line in lines]
    return []
