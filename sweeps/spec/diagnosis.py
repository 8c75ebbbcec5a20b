"""Everything that is wrong with a spec, once something is: problems by line, and what to paste to fix them."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from polysweep.sweeps.spec.checks import check_fields, check_metric
from polysweep.sweeps.spec.conditional import USUAL, as_variants
from polysweep.sweeps.spec.expansion import path_of
from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.parameter import Parameter
from polysweep.sweeps.spec.parsing import Parameters
from polysweep.sweeps.spec.problems import Problems
from polysweep.sweeps.spec.proposals import is_foreign_metric, metric_of, metric_proposal, options_of, propose
from polysweep.sweeps.spec.reading import FieldsRead, read_fields
from polysweep.sweeps.spec.sweep import nested
from polysweep.sweeps.spec.synonyms import means
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source, SpecError
from polysweep.trainer.components.plugins import component
from polysweep.trainer.components.registry import REGISTRY
from polysweep.trainer.config import COMPONENT_FIELDS, TrialConfig, check_field
from polysweep.trainer.errors import ConfigError, expected
from polysweep.trainer.history import METRICS
from polysweep.trainer.text import brief

MOST_TRIED: Final = 1000
"""Values of a parameter, and choices of components, that are looked at."""
_STAND_INS: Final[Mapping[str, Any]] = {"lr": 0.1, "rho": 0.05, "gamma_b": 1.0}
"""What a missing field is taken to be, so that what else is wrong is found too."""


@dataclass
class Diagnosis:
    """What a file's foreign names may mean, and what is wrong with the spec that it then is."""

    read: FieldsRead  # with the proposed names
    fields: SpecFields | None
    unknown: dict[str, KeyPath]  # names of the file that mean nothing here
    proposed: dict[str, str]  # of those, by name what each may be
    variants: list[dict[str, Any]]  # what conditional parameters are to be written as

    @property
    def nameless(self) -> list[str]:
        """Names for which nothing is proposed."""
        return [name for name in self.unknown if name not in self.proposed and _alike(name) is None]


def diagnose(data: Mapping[str, Any], where: Source, stem: str, count: int | None = None) -> Diagnosis:
    """Read a file with names proposed for those that mean nothing here, and look for all that is then wrong."""
    read = read_fields(data, where, stem, count=count)
    unknown = dict(read.reading.unknown)
    proposed: dict[str, str] = {}
    for by_spelling in (False, False, True):  # once a model is proposed, its options are
        spaces = _spaces(read)
        taken = {*read.reading.names.values(), *(name for space in spaces for name in space)}
        left = read.reading.unknown
        proposed |= propose(left, taken, options_of(spaces), by_spelling=by_spelling)
        read = read_fields(data, where, stem, proposed=proposed, count=count)
    metric = metric_of(data)
    if metric is not None and metric not in read.values["rename"] and is_foreign_metric(metric, _spaces(read)):
        has_val = any("val_fraction" in space for space in _spaces(read))
        ours = metric_proposal(metric, has_val=has_val)
        if ours is None:
            read.problems.add(("metric",), f"metric.name: {brief(metric)} is not measured; {expected('', METRICS)}")
        else:
            unknown[metric] = ("metric",)
            proposed[metric] = ours
            read = read_fields(data, where, stem, proposed=proposed, count=count)
    fields = read.validated(SpecFields)
    variants: list[dict[str, Any]] = []
    is_whole = isinstance(data.get("parameters"), dict) and data.get("variants", [{}]) not in ([], {})
    if fields is not None and is_whole:
        check_fields(fields, read.problems)
        variants = as_variants(fields)
        written = {(_alike(one.name) or one.name).partition(".")[0] for one in read.reading.written}
        _check_configs(fields, read.problems, {name for variant in variants for name in variant}, written)
    return Diagnosis(read, fields, unknown, proposed, variants)


def report(
    data: Mapping[str, Any], where: Source, stem: str, count: int | None = None, error: SpecError | None = None
) -> SpecError:
    """One error for everything that is wrong; `error` is what the expansion found, which comes first in its line."""
    diagnosis = diagnose(data, where, stem, count)
    problems = diagnosis.read.problems
    if error is not None and not any(error.reason == one.reason for one in problems.errors):
        problems.replace(error)
    is_alone = len(problems) + len(diagnosis.unknown) == 1
    for foreign, path in diagnosis.unknown.items():
        problems.add(path, _of_name(foreign, path, diagnosis.proposed.get(foreign), is_alone=is_alone))
    return problems.report(_advice(diagnosis, where, data, is_alone=is_alone))


def _of_name(foreign: str, path: KeyPath, ours: str | None, *, is_alone: bool) -> str:
    """What is said of a name that means nothing here."""
    what = "metric.name: unknown metric" if path == ("metric",) else "unknown parameter"
    if not is_alone or path == ("metric",):
        ours = ours or _alike(foreign)
        hint = "no field or option is like it" if ours is None else f"did you mean {ours!r}?"
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
    text = yaml.safe_dump({key: dict(values)}, sort_keys=False, allow_unicode=True, width=10**6)
    return str(text).splitlines()


def flow(value: Any) -> str:
    """A value as YAML, in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return str(text).removesuffix("\n").removesuffix("\n...").strip()


def _shared(diagnosis: Diagnosis) -> Parameters:
    return {} if diagnosis.fields is None else diagnosis.fields.parameters


def _spaces(read: FieldsRead) -> list[Parameters]:
    return [{**read.values["parameters"], **variant} for variant in read.values["variants"]]


def _check_configs(spec: SpecFields, problems: Problems, conditional: set[str], written: set[str]) -> None:
    """Components that are missing or unknown, values that no field may have, and fields that do not go together.

    Of `written`, the file's own fields, none is missing: what is wrong with it has been said.
    """
    for index, space in enumerate(spec.space):
        checked = _SpaceCheck(spec, index, space, problems, conditional, written)
        checked.components()
        checked.fields()
        if checked.is_complete:
            checked.together()


@dataclass
class _SpaceCheck:
    """The check of one variant with the shared parameters."""

    spec: SpecFields
    index: int
    space: Mapping[str, Parameter]
    problems: Problems
    conditional: set[str]
    written: set[str]

    def __post_init__(self) -> None:
        self._values = {
            name: list(itertools.islice(entry.grid or entry.extremes, MOST_TRIED)) for name, entry in self.space.items()
        }

    @property
    def is_complete(self) -> bool:
        """Whether there is a component of every kind."""
        return all(self._values.get(kind) for kind in COMPONENT_FIELDS)

    def components(self) -> None:
        """Report those that are missing or unknown, and keep the others."""
        for kind in COMPONENT_FIELDS:
            if kind not in self.space and kind not in self.written:
                self._add(ConfigError(kind, f"missing; {expected('', REGISTRY[kind])}"))
            for name in list(self._values.get(kind, ())):
                try:
                    component(kind, name)
                except ConfigError as error:
                    self._add(error)
                    self._values[kind].remove(name)

    def fields(self) -> None:
        """Report the first value of each field that it may not have, and keep the valid ones."""
        for name, values in self._values.items():
            if "." in name or name in COMPONENT_FIELDS:
                continue
            errors = {at: error for at, value in enumerate(values) if (error := check_field(name, value)) is not None}
            if errors:
                self._add(next(iter(errors.values())))
            self._values[name] = [value for at, value in enumerate(values) if at not in errors]

    def together(self) -> None:
        """Report what does not go together, for every choice of components, then for every value of one parameter."""
        values = {name: choices[0] for name, choices in self._values.items() if choices}
        choices = itertools.product(*[self._values[kind] for kind in COMPONENT_FIELDS])
        for choice in itertools.islice(choices, MOST_TRIED):
            whole = self._mended({**values, **dict(zip(COMPONENT_FIELDS, choice, strict=True))})
            for name, others in self._values.items():
                if whole is None or name in COMPONENT_FIELDS or name not in whole:
                    continue
                for value in others[1:]:
                    if not self._is_valid({**whole, name: value}):
                        break

    def _mended(self, values: dict[str, Any]) -> dict[str, Any] | None:
        """The values with those that are missing and without those that nothing reads; None for what else is wrong."""
        for _ in range(len(values) + len(_STAND_INS)):
            try:
                self._check_metric(TrialConfig.parse(nested(values)))
                return values
            except ConfigError as error:
                is_missing = error.key not in values and error.key in _STAND_INS
                if not is_missing or error.key not in self.written:
                    self._add(error)
                if is_missing:
                    values = {**values, error.key: _STAND_INS[error.key]}
                elif str(error).endswith("leave it out") and error.key in values:
                    values = {name: value for name, value in values.items() if name != error.key}
                else:
                    return None
        return None

    def _check_metric(self, config: TrialConfig) -> None:
        try:
            check_metric(self.spec, [config], self.problems.where)
        except SpecError as error:
            self.problems.replace(error)

    def _is_valid(self, values: dict[str, Any]) -> bool:
        try:
            TrialConfig.parse(nested(values))
        except ConfigError as error:
            self._add(error)
            return False
        return True

    def _add(self, error: ConfigError) -> None:
        """A problem at the line of the field; if the field belongs into a variant, with that."""
        message = str(error)
        if error.key in self.conditional:
            message = message.removesuffix("; leave it out") + "; see the variants below"
        self.problems.add(self._path(error.key), message)

    def _path(self, name: str) -> KeyPath:
        return path_of(self.spec, name, self.index, self.space)
