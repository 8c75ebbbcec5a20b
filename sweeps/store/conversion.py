"""Sweeps that a version before `sweep.json` has launched: spec.yaml and trials.json, read one last time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from polysweep.sweeps.spec.expansion import trial_of
from polysweep.sweeps.spec.search import Point, Suggestion
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import RecordedMetric, Settings, Sweep, SweepTrial, with_cells
from polysweep.sweeps.spec.yaml_lines import read_yaml
from polysweep.sweeps.store.checking import listed_trials, parse_json
from polysweep.sweeps.store.files import Files, StoreError, UnreadableError
from polysweep.trainer.errors import UserError


def old_sweep(files: Files, name: str, text: str) -> Sweep:
    """The sweep that its files describe.

    Its spec is expanded with today's code; a trial that does not come out, because numbers, defaults or checks have
    changed since or a user's own part is not there, is taken from trials.json and from its own config.json, in which
    fields that had their default are not named.
    """
    spec = _spec(files, name, text)
    listed = _listed(files, name)
    if listed is None:
        if spec is None:
            raise StoreError(f"{files.path(f'sweeps/{name}')}: damaged: no trials.json, and spec.yaml cannot be read")
        return spec.as_sweep()
    trials = _trials(files, listed, [] if spec is None else spec.trials)
    settings = _settings(text) if spec is None else spec.settings
    own = [trials[one["trial_id"]] for one in listed if not one.get("gone")]
    gone = [trials[one["trial_id"]] for one in listed if one.get("gone")]
    return Sweep(name, settings, with_cells(own, settings.fields, settings.tuned), gone)


def _trials(files: Files, listed: Sequence[Mapping[str, Any]], expanded: Sequence[SweepTrial]) -> dict[str, SweepTrial]:
    """By id every listed trial, from the best of its sources: the spec, its config.json, its place in the list."""
    trials = {trial.trial_id: trial for trial in expanded}
    missing = [one for one in listed if one["trial_id"] not in trials]
    configs = _mappings(files, [f"trials/{one['trial_id']}/config.json" for one in missing])
    records = _mappings(files, [f"trials/{one['trial_id']}/record.json" for one in missing])
    places = _by_place(listed, expanded)
    unknown = []
    for one, config, record in zip(missing, configs, records, strict=True):
        trial_id = one["trial_id"]
        if config:
            trials[trial_id] = _recorded(trial_id, config, record, one.get("cell") or {})
        elif trial_id in places:
            trials[trial_id] = replace(places[trial_id], trial_id=trial_id, cell_fields=())
        else:
            unknown.append(one)
    for one in unknown:
        trials[one["trial_id"]] = _never_started(one, list(trials.values()))
    return trials


def _spec(files: Files, name: str, text: str) -> SweepSpec | None:
    """The spec with the points that bayes has proposed, None if today's code cannot read it."""
    try:
        spec = SweepSpec.parse(text, f"sweep {name}", name, recorded=True)
        if spec.method == "bayes":
            folder = f"sweeps/{name}/points"
            names = [one for one in files.names(folder) if one.endswith(".json")]
            points = _mappings(files, [f"{folder}/{one}" for one in names])
            spec = spec.with_suggestions(Suggestion(Point(**one["point"]), one["raw"]) for one in points)
        _ = spec.trials
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return spec


def _mappings(files: Files, paths: Sequence[str]) -> list[dict[str, Any]]:
    """The contents of JSON files; empty for one that is absent or cannot be read."""
    return [_mapping(content) for content in files.read_many(paths).values()]


def _mapping(content: bytes | UnreadableError | None) -> dict[str, Any]:
    """The content of a JSON file; empty if it is absent or cannot be read."""
    try:
        value = json.loads(content) if isinstance(content, bytes) else None
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}


def _listed(files: Files, name: str) -> list[dict[str, Any]] | None:
    path = f"sweeps/{name}/trials.json"
    content, place = files.read(path), files.path(path)
    return None if content is None else listed_trials(parse_json(content, place), place)


def _by_place(listed: Sequence[Mapping[str, Any]], trials: Sequence[SweepTrial]) -> dict[str, SweepTrial]:
    """By the id that it has in the list, the trial of the spec at the same place, if the cells of all agree."""
    own = [one for one in listed if not one.get("gone")]
    if [one.get("cell") for one in own] != [trial.cell for trial in trials]:
        return {}
    return {one["trial_id"]: trial for one, trial in zip(own, trials, strict=True)}


def _recorded(
    trial_id: str, config: Mapping[str, Any], record: Mapping[str, Any], cell: Mapping[str, Any]
) -> SweepTrial:
    """A trial from its own config.json."""
    try:
        trial = trial_of(config, recorded=True)
        return SweepTrial(trial_id, trial.values, trial.signature)
    except (UserError, ValueError, TypeError):
        pass
    values = dict(cell)
    for name, value in config.items():
        if isinstance(value, dict):
            values |= {f"{name}.{option}": setting for option, setting in value.items()}
        else:
            values[name] = value
    epochs = record.get("epochs", record.get("epoch", 0))
    return SweepTrial(trial_id, {"epochs": epochs, "seed": 0, **values})


def _never_started(one: Mapping[str, Any], others: Sequence[SweepTrial]) -> SweepTrial:
    """A trial whose cell alone is known: with what all others share, and a seed that is free in its cell."""
    cell = dict(one.get("cell") or {})
    shared = dict(others[0].values) if others else {}
    for other in others:
        shared = {name: value for name, value in shared.items() if other.values.get(name) == value}
    taken = {other.seed for other in others if cell.items() <= dict(other.values).items()}
    seed = next(number for number in itertools.count() if number not in taken)
    return SweepTrial(one["trial_id"], {"epochs": 0, **shared, **cell, "seed": seed})


def _settings(text: str) -> Settings:
    """What can be read of a spec without understanding its parameters."""
    try:
        data = read_yaml(text, "spec.yaml")[0]
    except UserError:
        data = None
    data = data if isinstance(data, dict) else {}
    metric: dict[str, Any] = _given(data, "metric", dict)
    variants = [one for one in _given(data, "variants", list) if isinstance(one, dict)]
    ours: dict[str, Any] = _given(data, "rename", dict)
    written = dict.fromkeys([*_given(data, "parameters", dict), *(name for one in variants for name in one)])
    return Settings(
        method=str(data.get("method", "grid")),
        metric=RecordedMetric(str(metric.get("name", "test/top1")), str(metric.get("goal", "maximize"))),
        tuned=tuple(str(ours.get(name, name)) for name in map(str, _given(data, "tuned", list))),
        fields=tuple(str(ours.get(name, name)) for name in map(str, written)),
        project=_given(data, "project", str) or None,
        entity=_given(data, "entity", str) or None,
        text=text,
    )


def _given(data: Mapping[str, Any], key: str, kind: type) -> Any:
    value = data.get(key)
    return value if isinstance(value, kind) else kind()
