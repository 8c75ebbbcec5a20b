"""A spec file's data as the fields of a spec: parameters under our names, what W&B's format leaves open filled in."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from polysweep.sweeps.spec.checks import is_first_of_union, validation_problem
from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.parameter import Parameter
from polysweep.sweeps.spec.parsing import (
    Parameters,
    Reading,
    are_seeds,
    is_parameter,
    read_parameters,
    read_rename,
    read_seeds,
    read_variants,
)
from polysweep.sweeps.spec.problems import Problems
from polysweep.sweeps.spec.sweep import NAME_PATTERN
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source
from polysweep.trainer.errors import expected
from polysweep.trainer.history import METRICS
from polysweep.trainer.text import brief

Spec = TypeVar("Spec", bound=SpecFields)
LARGEST_DEFAULT: Final = 1000
"""Trials of a random or bayes sweep without `run_cap`: a larger grid is hardly meant as a whole."""


@dataclass
class FieldsRead:
    """The fields of a spec as far as they can be read, and all that is wrong with the others."""

    values: dict[str, Any]
    problems: Problems
    reading: Reading
    notes: list[str] = field(default_factory=list)  # what is not as the file says, in a line each
    title: str = ""  # the name as written, if it is not the sweep's

    def validated(self, spec: type[Spec]) -> Spec | None:
        """The fields by themselves; what is wrong joins the problems. None if no spec is left without it."""
        values = dict(self.values)
        while True:
            try:
                return spec.model_validate(values)
            except ValidationError as error:
                keys = {str(one["loc"][0]) for one in error.errors() if one["loc"]}
                for one in filter(is_first_of_union, error.errors()):
                    self.problems.take(validation_problem(one, self.problems.where))
                if not keys & values.keys():
                    return None
                values = {key: value for key, value in values.items() if key not in keys}


def read_fields(
    data: Mapping[str, Any],
    where: Source,
    stem: str,
    *,
    proposed: Mapping[str, str] | None = None,
    count: int | None = None,
    recorded: bool = False,
) -> FieldsRead:
    """The fields of a file's data. `proposed` renames what the file's own `rename` does not, `count` is a `run_cap`."""
    problems = Problems(where)
    _check_keys(data, problems)
    metric = data["metric"].get("name") if isinstance(data.get("metric"), dict) else None
    rename = read_rename(data.get("rename"), problems, metric)
    reading = Reading({**(proposed or {}), **rename}, problems)
    values = {key: value for key, value in data.items() if key in SpecFields.model_fields and value is not None}
    read = FieldsRead({**values, "rename": rename}, problems, reading)
    shared = read_parameters(data.get("parameters"), ("parameters",), reading)
    variants = read_variants(data.get("variants"), reading)
    read.values |= {"parameters": shared, "variants": variants, "seeds": [0]}
    with problems.collecting():
        read.values["seeds"] = read_seeds(data, [shared, *variants], where)
    _read_protocol(read, data)
    _read_name(read, data.get("name"), stem)
    _read_metric(read, metric)
    _read_tuned(read)
    _read_claims(read, rename)
    _read_replicate(read, rename)
    if data.get("method") == "bayes":
        _read_constant_seed(read)
    if data.get("method") in ("random", "bayes"):
        _read_run_cap(read, data, count)
    elif count is not None:
        problems.add((), "--count is for method: random and bayes; a grid has the trials that it lists")
    elif data.get("count") is not None:
        read.notes.append("ignored: count (a grid has the trials that it lists)")
    if not recorded:
        _refuse_unused(read, rename, metric)
    return read


def _check_keys(data: Mapping[str, Any], problems: Problems) -> None:
    for key in ("protocol", "replicate", "claims"):
        if key in data and data[key] is None:
            problems.add((key,), f"{key}: is empty; leave it out, or say what it is")
    for key, value in data.items():
        is_entry = isinstance(value, dict) and not value.keys().isdisjoint(Parameter.model_fields)
        if is_parameter(key) and (is_entry or key not in SpecFields.model_fields):
            problems.add((key,), f"{key!r} is a parameter; it belongs under 'parameters'")
        elif key not in SpecFields.model_fields:
            problems.add((key,), f"unknown key: {brief(key)}; {expected(key, SpecFields.model_fields)}")


def _read_name(read: FieldsRead, name: Any, stem: str) -> None:
    name = stem if name is None else name
    slug = slug_of(name) if isinstance(name, str) else ""
    read.values["name"] = slug or "sweep"
    if not slug:
        read.problems.add(
            ("name",),
            f"sweep name {brief(name)}: use 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
        )
    elif slug != name:
        read.title = name
        read.notes.append(f"the sweep {brief(name)} is called {slug} in the Store and by the commands")


def slug_of(name: str) -> str:
    """A name of letters, digits, '.', '_' and '-' that stands for any text; empty if it has no letter or digit."""
    if NAME_PATTERN.fullmatch(name):
        return name
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("._-")[:64].rstrip("._-")


def _read_metric(read: FieldsRead, name: Any) -> None:
    metric = read.values.get("metric")
    if not isinstance(metric, dict):
        return
    if isinstance(name, str):
        metric = {**metric, "name": read.reading.ours(name, name)}
    if metric.get("goal") is None:
        metric = {**metric, "goal": "minimize"}
        better = "; if larger is better, write goal: maximize" if "loss" not in str(metric.get("name")) else ""
        read.notes.append(f"metric.goal is not given: minimize, as in W&B{better}")
    read.values["metric"] = metric


def _read_tuned(read: FieldsRead) -> None:
    tuned = read.values.get("tuned")
    if isinstance(tuned, list):
        names = read.reading.names
        read.values["tuned"] = [names.get(one, one) if isinstance(one, str) else one for one in tuned]


def _read_claims(read: FieldsRead, rename: Mapping[str, str]) -> None:
    """Claims with our names of their fields and metrics."""

    def ours(claim: Any) -> Any:
        if not isinstance(claim, dict):
            return claim
        renamed = dict(claim)
        for key in ("better", "than", "over"):
            if isinstance(claim.get(key), dict):
                renamed[key] = {read.reading.names.get(name, name): value for name, value in claim[key].items()}
        if isinstance(claim.get("metric"), str):
            renamed["metric"] = rename.get(claim["metric"], claim["metric"])
        return renamed

    claims = read.values.get("claims")
    if isinstance(claims, list):
        read.values["claims"] = [ours(claim) for claim in claims]


def _read_replicate(read: FieldsRead, rename: Mapping[str, str]) -> None:
    """A replication with our names of what is compared and of the metric."""
    replicate = read.values.get("replicate")
    if not isinstance(replicate, dict):
        return
    names, ours = read.reading.names, dict(replicate)
    compare = replicate.get("compare")
    if isinstance(compare, str):
        ours["compare"] = names.get(compare, compare)
    elif isinstance(compare, dict):
        ours["compare"] = {names.get(name, name): values for name, values in compare.items()}
    if isinstance(replicate.get("metric"), str):
        ours["metric"] = rename.get(replicate["metric"], replicate["metric"])
    read.values["replicate"] = ours


def _read_protocol(read: FieldsRead, data: Mapping[str, Any]) -> None:
    """The tuning seeds of a protocol are the `seeds` of the sweep."""
    protocol = data.get("protocol")
    tune_on = protocol.get("tune_on") if isinstance(protocol, dict) else None
    if not are_seeds(tune_on):
        return  # what is wrong with it is said when the protocol is validated
    places: list[KeyPath] = [("seeds",)] if data.get("seeds") is not None else []
    for path in [*places, *((*one.part, one.foreign) for one in read.reading.written if one.name == "seed")]:
        read.problems.add(path, f"{path[-1]!r} beside 'protocol', whose tune_on are the candidates' seeds: give one")
    read.values["seeds"] = tune_on


def _read_constant_seed(read: FieldsRead) -> None:
    """A shared seed with one value is `seeds` of one: a bayes sweep has no other."""
    shared: Parameters = read.values["parameters"]
    grid = shared["seed"].grid if "seed" in shared else None
    if grid is not None and len(grid) == 1 and type(grid[0]) is int and grid[0] >= 0:
        read.values["parameters"] = {name: entry for name, entry in shared.items() if name != "seed"}
        read.values["seeds"] = grid


def _read_run_cap(read: FieldsRead, data: Mapping[str, Any], count: int | None) -> None:
    """`run_cap`, or what takes its place: `--count`, the file's `count`, or the size of the grid."""
    protocol = data.get("protocol")
    has_budget = isinstance(protocol, dict) and protocol.get("budget") is not None
    if data.get("run_cap") is not None:
        if has_budget:
            read.problems.add(("run_cap",), "run_cap beside protocol.budget, which says how many are drawn: give one")
        if count is not None:
            read.problems.add(("run_cap",), f"run_cap: {data['run_cap']} beside --count {count}: give one of them")
        elif data.get("count") is not None:
            read.notes.append("ignored: count (run_cap is given)")
        return
    if has_budget:
        return
    asked = data.get("count") if count is None else count
    if asked is not None:
        read.values["run_cap"] = asked
        if count is None:
            read.notes.append(f"count: {brief(asked)} is taken as run_cap")
        return
    spaces = [{**read.values["parameters"], **variant} for variant in read.values["variants"]]
    grids = [[entry.grid for entry in space.values()] for space in spaces]
    if any(grid is None for space in grids for grid in space):
        return
    points = sum(math.prod(len(grid or ()) for grid in space) for space in grids)
    trials = points * len(read.values["seeds"])
    if trials <= LARGEST_DEFAULT:
        read.values["run_cap"] = trials
        read.notes.append(f"run_cap is not given: {trials} trials, as many as the grid has")


def _refuse_unused(read: FieldsRead, rename: Mapping[str, str], metric: Any) -> None:
    there: Sequence[str] = [*read.reading.names, *([metric] if isinstance(metric, str) else [])]
    for foreign, ours in rename.items():
        if foreign in read.reading.used or not (is_parameter(ours) or ours in METRICS):
            continue
        read.problems.add(
            ("rename", foreign), f"rename: {brief(foreign)} is no name in this file; {expected(foreign, there)}"
        )
