"""What a launch keeps of its sweep, and everything else reads: `sweep.json` and what later launches have added to it.

A part is created exclusively and never written again, so that no launch can write an older state back. The first one,
`sweep.json`, describes the sweep and lists its trials; `sweep-<n>.json` are what has changed since: other settings,
further trials, another order. A part:

    format      of this file
    sweep       method, metric, tuned, seeds, launch, ...: see `Settings`; absent if they are as before
    shared      what all of `trials` have in common
    trials      trial_id, config (the fields in use, as `runs` has them), signature, width (K as planned), variant,
                role (`added` if a decision has added it)
    order       the trials of the launched file in its order; absent if they are those before and then `trials`

Nothing here needs the code that the trials were made with: no config is parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from polysweep.sweeps.spec.sweep import ADDED, Settings, Sweep, SweepTrial, hashable, with_cells
from polysweep.sweeps.store.checking import PART_FORMAT


def part(settings: Settings | None, trials: Sequence[SweepTrial], order: Sequence[str] | None = None) -> dict[str, Any]:
    """A part as JSON; what all trials have in common is written once."""
    entries = [trial.entry() for trial in trials]
    shared = _common([{key: entry[key] for key in entry if key not in ("trial_id", "config")} for entry in entries])
    config = _common([entry["config"] for entry in entries])
    for entry in entries:
        entry["config"] = {name: value for name, value in entry["config"].items() if name not in config}
    has_added = any(trial.is_added for trial in trials)
    needs_newest = has_added or (settings is not None and (settings.protocol or settings.replicate))
    data: dict[str, Any] = {"format": PART_FORMAT if needs_newest else 1}
    if settings is not None:
        data["sweep"] = settings.as_json()
    data["columns"] = in_order(trial.values for trial in trials)
    data["shared"] = {**shared, "config": config}
    data["trials"] = [{key: value for key, value in entry.items() if key not in shared} for entry in entries]
    return data if order is None else {**data, "order": list(order)}


def _common(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The items that all of them have."""
    common = dict(mappings[0]) if mappings else {}
    for mapping in mappings[1:]:
        for name in [name for name in common if name not in mapping or not _is_same(mapping[name], common[name])]:
            del common[name]
    return common


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def assembled(name: str, parts: Sequence[Mapping[str, Any]]) -> Sweep:
    """The sweep that parts describe, the first one first.

    Raises `KeyError`, `TypeError` or `ValueError` if one of them is damaged.
    """
    settings = Settings.of(parts[0]["sweep"])
    trial_by_id: dict[str, SweepTrial] = {}
    order: dict[str, None] = {}
    for one in parts:
        if "sweep" in one:
            settings = Settings.of(one["sweep"])
        shared = dict(one["shared"])
        common = shared.pop("config")
        columns = one["columns"]
        for listed in one["trials"]:
            entry = {**shared, **listed}
            values = {**common, **listed["config"]}
            trial_id = str(entry["trial_id"])
            if type(values["epochs"]) is not int:
                raise TypeError(f"epochs of {trial_id}")
            trial_by_id[trial_id] = SweepTrial(
                trial_id,
                {name: hashable(values[name]) for name in columns if name in values},
                str(entry["signature"]),
                int(entry["variant"]),
                None if entry["width"] is None else int(entry["width"]),
                entry.get("role") == ADDED,
            )
            order[trial_id] = None
        if "order" in one:
            order = dict.fromkeys(one["order"])
    trials, gone = [trial_by_id[i] for i in order], [trial for i, trial in trial_by_id.items() if i not in order]
    return Sweep(name, settings, with_cells(trials, settings.fields, settings.tuned), with_cells(gone, (), ()))


def added(before: Sweep | None, settings: Settings, trials: Sequence[SweepTrial]) -> dict[str, Any] | None:
    """The part that a launch adds to a sweep, None if it adds nothing.

    A trial that is listed without a field of today, which a later version has added, is listed again beside new ones:
    the field may be what tells them apart.
    """
    if before is None:
        return part(settings, trials)
    by_id = {trial.trial_id: trial for trial in (*before.trials, *before.gone)}
    new = [trial for trial in trials if trial.trial_id not in by_id]
    is_appended = [trial.trial_id for trial in (*before.trials, *new)] == [trial.trial_id for trial in trials]
    if not new and is_appended and settings == before.settings:
        return None
    changed = None if settings == before.settings else settings
    older = [
        replace(by_id[trial.trial_id], values=trial.values)
        for trial in trials
        if trial.trial_id in by_id and not trial.values.keys() <= by_id[trial.trial_id].values.keys()
    ]
    return part(changed, [*older, *new] if new else [], None if is_appended else [trial.trial_id for trial in trials])


def in_order(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The fields of all configs, each behind the one that is before it in a config."""
    fields: list[str] = []
    for names in dict.fromkeys(map(tuple, configs)):
        at = 0
        for name in names:
            if name in fields:
                at = fields.index(name)
            else:
                fields.insert(at, name)
            at += 1
    return fields


def to_json(sweep: Sweep) -> dict[str, Any]:
    """A whole sweep as one part: what a pull from W&B keeps."""
    return {"name": sweep.name, **part(sweep.settings, sweep.trials)}


def from_json(data: Mapping[str, Any]) -> Sweep:
    """From `to_json`."""
    return assembled(str(data["name"]), [data])
