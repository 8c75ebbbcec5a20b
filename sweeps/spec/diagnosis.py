"""Everything that is wrong with a spec, once something is: problems by line, and what to paste to fix them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polysweep.sweeps.spec.checks import check_fields, check_metric_is_given
from polysweep.sweeps.spec.conditional import as_variants
from polysweep.sweeps.spec.config_checks import check_configs
from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.parsing import Parameters, is_parameter
from polysweep.sweeps.spec.proposals import (
    USUAL,
    chosen_options,
    is_foreign_metric,
    meaning,
    meanings,
    metric_of,
    metric_proposal,
)
from polysweep.sweeps.spec.reading import FieldsRead, read_fields
from polysweep.sweeps.spec.synonyms import means
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source, SpecError, to_yaml
from polysweep.trainer.components.registry import REGISTRY
from polysweep.trainer.config import COMPONENT_FIELDS, TrialConfig
from polysweep.trainer.errors import expected
from polysweep.trainer.history import METRICS
from polysweep.trainer.text import brief


@dataclass
class Diagnosis:
    """What a file's foreign names may mean, and what is wrong with the spec that it then is."""

    read: FieldsRead  # with the proposed names
    fields: SpecFields | None
    unknown: dict[str, KeyPath]  # names of the file that mean nothing here
    proposed: dict[str, str]  # of those, by name what each may be
    variants: list[dict[str, Any]]  # what conditional parameters are to be written as
    is_metric_ours: bool = True  # or proposed

    @property
    def nameless(self) -> list[str]:
        """Names for which nothing is proposed."""
        return [name for name in self.unknown if not (self.proposed.get(name) or _alike(name) or meaning(name))]


def diagnose(data: Mapping[str, Any], where: Source, stem: str, count: int | None = None) -> Diagnosis:
    """Read a file with names proposed for those that mean nothing here, and look for all that is then wrong."""
    read = read_fields(data, where, stem, count=count)
    unknown = dict(read.reading.unknown)
    proposed: dict[str, str] = {}
    for by_spelling in (False, False, True):  # once a model is proposed, its options are
        spaces = _spaces(read)
        taken = {*read.reading.names.values(), *(name for space in spaces for name in space)}
        left = read.reading.unknown
        proposed |= meanings(left, taken, chosen_options(spaces), by_spelling=by_spelling)
        read = read_fields(data, where, stem, proposed=proposed, count=count)
    metric = metric_of(data)
    is_foreign = metric not in read.values["rename"] and is_foreign_metric(metric, _spaces(read))
    if metric is not None and is_foreign:
        has_val = any("val_fraction" in space for space in _spaces(read))
        ours = metric_proposal(metric, has_val=has_val)
        if ours is not None and metric in unknown:
            is_foreign = False
            read.values["metric"] = {**read.values["metric"], "name": ours}
            problem = f"metric.name: unknown metric {brief(metric)}; write {ours!r}: a parameter has the same name"
            read.problems.add(("metric",), problem)
        elif ours is not None:
            unknown[metric] = ("metric",)
            proposed[metric] = ours
            read = read_fields(data, where, stem, proposed=proposed, count=count)
    fields = read.validated(SpecFields)
    variants: list[dict[str, Any]] = []
    is_whole = isinstance(data.get("parameters"), dict) and data.get("variants", [{}]) not in ([], {})
    if fields is not None and is_whole:
        check_fields(fields, read.problems)
        with read.problems.collecting():
            check_metric_is_given(fields, data, where)
        variants = as_variants(fields)
        written = {(_alike(one.name) or one.name).partition(".")[0] for one in read.reading.written}
        check_configs(fields, read.problems, {name for variant in variants for name in variant}, written)
    if is_foreign and metric not in proposed and not any("metric.name" in one.reason for one in read.problems.errors):
        read.problems.add(("metric",), f"metric.name: {brief(metric)} is not measured; {expected('', METRICS)}")
    return Diagnosis(read, fields, unknown, proposed, variants, not is_foreign or metric in proposed)


def report(
    data: Mapping[str, Any],
    where: Source,
    stem: str,
    count: int | None = None,
    *,
    misread: Sequence[SpecError] = (),
    raised: SpecError | None = None,
) -> SpecError:
    """One error for everything that is wrong; `misread` is what YAML reads otherwise, `raised` by the expansion."""
    diagnosis = diagnose(data, where, stem, count)
    problems = diagnosis.read.problems
    if raised is not None and not problems.has(raised.line, raised.reason.removesuffix("; leave it out")):
        problems.replace(raised)
    problems.override(misread)
    is_alone = len(problems) + len(diagnosis.unknown) == 1
    for foreign, path in diagnosis.unknown.items():
        problems.add(path, _of_name(foreign, path, diagnosis.proposed.get(foreign), is_alone=is_alone))
    return problems.report(_advice(diagnosis, where, data, is_alone=is_alone))


def _of_name(foreign: str, path: KeyPath, ours: str | None, *, is_alone: bool) -> str:
    """What is said of a name that means nothing here."""
    what = "metric.name: unknown metric" if path == ("metric",) else "unknown parameter"
    if not is_alone or path == ("metric",):
        ours, same = ours or _alike(foreign), meaning(foreign)
        hint = "no field or option is like it" if ours is None else f"did you mean {ours!r}?"
        if ours is None and same is not None:
            hint = f"it means {same!r}, which the file gives too: keep one of them"
        return f"{what} {brief(foreign)}; {hint}"
    alike, rule, names = expected(foreign, TrialConfig.model_fields).rpartition("expected one of")
    proposal = alike if ours is None or "." not in ours else f"did you mean {ours!r}? "
    return f"{what} {brief(foreign)}; {proposal}{rule}{names}"


def _alike(foreign: str) -> str | None:
    """A field that is spelled alike, without being sure enough to be proposed."""
    alike = difflib.get_close_matches(foreign.lower(), TrialConfig.model_fields, n=1, cutoff=0.75)
    return alike[0] if alike and abs(len(alike[0]) - len(foreign)) <= 1 else None


def _advice(diagnosis: Diagnosis, where: Source, data: Mapping[str, Any], *, is_alone: bool) -> list[str]:
    """Lines to paste, and what to do about the names that have none."""
    lines: list[str] = []
    of_kinds = [kind for kind in COMPONENT_FIELDS if all(kind not in space for space in _spaces(diagnosis.read))]
    if diagnosis.proposed and not (is_alone and not _is_foreign(diagnosis)):
        before: dict[str, Any] = data["rename"] if isinstance(data.get("rename"), dict) else {}
        before = {name: ours for name, ours in before.items() if is_parameter(ours) or ours in METRICS}
        verb = f"'rename' of {where.name} as it should be" if before else f"to rename, paste this into {where.name}"
        lines += ["", f"{verb}:", *block("rename", {**before, **diagnosis.proposed})]
        lines += [f"  # {one}" for one in metric_remarks(diagnosis)]
    if diagnosis.nameless and not is_alone:
        nameless = ", ".join(diagnosis.nameless)
        lines += [
            "",
            f"nothing is proposed for {nameless}: remove them; or let a part of your own read them as options, with "
            "rename: {NAME: model_options.NAME} (docs/extending.md)",
        ]
    if of_kinds and len(diagnosis.read.problems) > 1:
        lines += ["", "to add below 'parameters', with your choice:"]
        lines += [
            f"  {kind}: {{value: {choices_of(kind)[0]}}}  # or {', '.join(choices_of(kind)[1:])}" for kind in of_kinds
        ]
    if diagnosis.variants:
        names = {ours: foreign for foreign, ours in diagnosis.read.reading.names.items()}  # the file's, as in `rename`
        moved = [names[name] for name in _shared(diagnosis) if any(name in variant for variant in diagnosis.variants)]
        place = " in place of the variants" if "variants" in data else ""
        lines += [
            "",
            f"not all components read the same: remove {', '.join(moved)} from 'parameters', and paste{place}:",
        ]
        if diagnosis.fields is not None and diagnosis.fields.method != "grid":
            lines += ["# a search draws each variant equally often"]
        in_file = [{names[name]: entry for name, entry in variant.items()} for variant in diagnosis.variants]
        lines += ["variants:", *(f"  - {flow(variant)}" for variant in in_file)]
    return lines


def _is_foreign(diagnosis: Diagnosis) -> bool:
    """Whether the one name that is unknown is another word, not a slip of the finger."""
    (foreign,) = diagnosis.unknown
    return diagnosis.unknown[foreign] == ("metric",) or means(foreign, diagnosis.proposed[foreign].rpartition(".")[2])


def metric_remarks(diagnosis: Diagnosis) -> list[str]:
    """What must be known of the metric that is proposed."""
    ours = next((diagnosis.proposed[name] for name, path in diagnosis.unknown.items() if path == ("metric",)), "")
    if not ours.startswith("test/"):
        return []
    return [f"{ours}: no images are held out; for {ours.replace('test/', 'val/')} add val_fraction: {{value: 0.1}}"]


def choices_of(kind: str) -> list[str]:
    """Valid names of a kind of component, the first a usual one."""
    return list(dict.fromkeys([USUAL[kind], *REGISTRY[kind]]))


def block(key: str, values: Mapping[str, Any]) -> list[str]:
    """A mapping as YAML, a line for each item."""
    return to_yaml({key: dict(values)}).splitlines()


def flow(value: Any) -> str:
    """A value as YAML, in one line."""
    return to_yaml(value, in_one_line=True)


def _shared(diagnosis: Diagnosis) -> Parameters:
    return {} if diagnosis.fields is None else diagnosis.fields.parameters


def _spaces(read: FieldsRead) -> list[Parameters]:
    return [{**read.values["parameters"], **variant} for variant in read.values["variants"]]
