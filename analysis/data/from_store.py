"""Runs and history of a sweep from its Store, through a cache that notices every changed record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from polysweep.analysis.data.best_epochs import scores
from polysweep.analysis.data.cache import EMPTY, Cache, Cached
from polysweep.analysis.data.frames import RunSet, SelectionRule, empty_history, frame, joined, runs_of, to_arrow
from polysweep.analysis.data.probed import with_probes
from polysweep.sweeps.spec.protocol import Protocol, Replication
from polysweep.sweeps.spec.sweep import Sweep, SweepTrial
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.preregistered import frozen_claims
from polysweep.sweeps.store.states import FINAL, State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.store.sweep_index import in_order
from polysweep.trainer.components.sources import sources_text
from polysweep.trainer.history import RENAMED

RECORDED: Final = ("width", "epoch", "started", "ended", "seconds", "error")
PROVENANCE: Final = ("numerics", "commit", "device", "device_model", "threads", "image", "sources")
COLUMNS: Final = "2"
"""Which columns a cache of a Store has besides the fields: another number where a version adds or renames some."""
_CHUNK: Final = 500


def protocol_of(sweep: Sweep, source: str) -> SelectionRule:
    """The protocol of a sweep."""
    metric, settings = sweep.metric, sweep.settings
    ranges = {(variant, name): one for variant, name, one in settings.ranges}
    fields, names = dict.fromkeys(sweep.cell_fields), {name for trial in sweep.trials for name in trial.cell}
    cell = tuple(name for name in fields if name in names)
    return SelectionRule(
        sweep.name, metric.name, metric.goal, cell, settings.tuned, sweep.text, source,
        project=settings.project, entity=settings.entity, directions=settings.directions, ranges=ranges,
        is_search=settings.method != "grid" and not settings.tuned, log_fields=_drawn_in_logarithms(settings.space),
        roles=None if settings.protocol is None else Protocol.model_validate(settings.protocol),
        replication=None if settings.replicate is None else Replication.model_validate(settings.replicate),
    )  # fmt: skip


def _drawn_in_logarithms(space: str) -> frozenset[str]:
    """The parameters of a search that are drawn on a logarithmic scale; `space` is that of its settings."""
    variants = json.loads(space)["space"] if space else []
    entries = [(name, entry) for variant in variants for name, entry in variant.items()]
    return frozenset(name for name, entry in entries if "log" in (entry.get("distribution") or ""))


def with_current_columns(history: pa.Table) -> pa.Table:
    """A history of our own runs, of which some or all have names that columns had in an older version."""
    for before, now in RENAMED.items():
        if before in history.column_names and now in history.column_names:
            both = pc.coalesce(history[now], history[before])
            history = history.drop_columns([before])
            history = history.set_column(history.column_names.index(now), now, both)
        elif before in history.column_names:
            history = history.rename_columns([now if name == before else name for name in history.column_names])
    return history


def with_columns_of(sweep: Sweep, runs: pa.Table, protocol: SelectionRule) -> pa.Table:
    """The runs with what only their sweep knows, if it is needed: the variant of each, whether a decision added it."""
    if protocol.ranges:
        runs = runs.append_column("variant", pa.array([trial.variant for trial in sweep.trials], pa.int64()))
    if protocol.roles:
        runs = runs.append_column("is_added", pa.array([trial.is_added for trial in sweep.trials], pa.bool_()))
    return runs


def pull_store(name: str, store: Store, cache: Path | None) -> RunSet:
    """Read the sweep `name`; `cache` is where what was read is kept, None for nowhere.

    Raises `StoreError` for an unknown sweep and for a finished trial without its whole history.
    """
    sweep = store.launched(name)
    protocol = _as_decided(protocol_of(sweep, store.root), store)
    ids = [trial.trial_id for trial in sweep.trials]
    columns = " ".join([COLUMNS, *sorted(in_order(trial.values for trial in sweep.trials))])
    keeper = None if cache is None else Cache(cache, f"store {store.root} sweep {name}")
    with keeper.locked() if keeper else nullcontext():
        old = keeper.load() if keeper else EMPTY
        if old.metadata("columns") != columns:
            old = EMPTY  # of an older version, or of a sweep whose trials had other fields
        stamps = store.stamps(ids)  # before the reading: what changes meanwhile is read again next time
        unchanged = _known(old, stamps)
        records: dict[str, Mapping[str, Any]] = {}
        states = store.states(sweep, ended=unchanged, records=records)
        same = _same(old, stamps)
        changed = [trial for trial in sweep.trials if trial.trial_id not in same]
        metadata = {"metric": protocol.metric, "goal": protocol.goal, "columns": columns}
        is_scored = all(old.metadata(key) == value for key, value in metadata.items())
        cached = old
        if changed or runs_of(old.runs) != ids or not is_scored:
            runs, history = _read(changed, store, states, records, stamps)
            if is_scored:
                runs = _scored(runs, history, protocol)
            cached = old.updated(ids, runs, history)
            if not is_scored:
                cached = Cached(_scored(cached.runs, cached.history(), protocol), cached.shards)
            cached = keeper.save(cached, **metadata) if keeper else cached
    outcomes = pa.array([states[trial_id].state for trial_id in ids], pa.string())
    shown = cached.runs.drop_columns(["stamp", "rows", "recorded", "shard", "start"]).replace_schema_metadata(None)
    names = pa.array([sweep.name] * len(ids), pa.string())
    shown = shown.add_column(1, "sweep", names).add_column(2, "outcome", outcomes)
    shown, probed, damage = with_probes(with_columns_of(sweep, shown, protocol), name, store)
    problem = " ".join(filter(None, [protocol.problem, *damage]))
    return RunSet(replace(protocol, probed=probed, problem=problem), frame(shown), cached.history)


def _as_decided(protocol: SelectionRule, store: Store) -> SelectionRule:
    """With frozen claims and what results have decided; tables do not need either, so that damage is only named."""
    problems = []
    try:
        protocol = replace(protocol, claims=frozen_claims(store.files, protocol.name))
    except StoreError as error:
        problems.append(f"The claims cannot be read: {error}.")
    try:
        if protocol.replication or protocol.roles:
            decided = store.search.decisions(protocol.name)
            protocol = replace(protocol, looks_made=decided.looks, begun=decided.begun)
    except StoreError as error:
        problems.append(f"What was decided cannot be read: {error}.")
    return replace(protocol, problem=" ".join(problems))


def _scored(runs: pa.Table, history: pa.Table, protocol: SelectionRule) -> pa.Table:
    """The runs with what they scored, before their records."""
    fresh = scores(history, runs["rows"].to_pylist(), runs["recorded"].to_pylist(), protocol)
    plain = [name for name in runs.column_names if name not in fresh]
    head = plain.index("width")
    return pa.table({n: runs[n] for n in plain[:head]} | fresh | {n: runs[n] for n in plain[head:]})


def _same(old: Cached, stamps: Mapping[str, str]) -> set[str]:
    """The trials whose files have not changed since they were read."""
    pairs = zip(old.runs["trial_id"].to_pylist(), old.runs["stamp"].to_pylist(), strict=True)
    return {trial_id for trial_id, stamp in pairs if stamps.get(trial_id, "") == stamp}


def _known(old: Cached, stamps: Mapping[str, str]) -> dict[str, TrialState]:
    """Those of them that had ended."""
    if not old.runs.num_rows:
        return {}
    columns = [old.runs[name].to_pylist() for name in ("trial_id", "recorded", "width", "epoch")]
    same = _same(old, stamps)
    return {
        trial_id: TrialState(outcome, width, epoch)
        for trial_id, outcome, width, epoch in zip(*columns, strict=True)
        if outcome in FINAL and trial_id in same and trial_id in stamps
    }


def _read(
    trials: Sequence[SweepTrial],
    store: Store,
    states: dict[str, TrialState],
    records: Mapping[str, Mapping[str, Any]],
    stamps: Mapping[str, str],
) -> tuple[pa.Table, pa.Table]:
    """Runs and histories of trials from their files. In `states`, those whose history is damaged become failed."""
    ids = [trial.trial_id for trial in trials]
    started = [trial_id for trial_id in ids if states[trial_id].state != "new"]
    lengths, parts, damage = dict.fromkeys(ids, 0), [empty_history()], dict[str, str]()
    for at in range(0, len(started), _CHUNK):
        chunk = []
        for trial_id, table in store.histories(started[at : at + _CHUNK]):
            if isinstance(table, StoreError):
                damage[trial_id] = str(table)
            elif table.num_rows:
                chunk.append((trial_id, table))
        lengths |= {trial_id: table.num_rows for trial_id, table in chunk}
        if chunk:
            owners = np.repeat([trial_id for trial_id, _ in chunk], [table.num_rows for _, table in chunk])
            whole = joined([table for _, table in chunk])
            parts.append(whole.add_column(0, "trial_id", pa.array(owners, pa.string())))
    for trial in trials:
        trial_id, rows = trial.trial_id, lengths[trial.trial_id]
        if states[trial_id].state == "finished" and rows != trial.epochs and trial_id not in damage:
            path = f"{store.root}/trials/{trial_id}/history.parquet"
            damage[trial_id] = f"{path}: damaged: {rows} epochs of {trial.epochs} of a finished trial"
    states |= {trial_id: replace(states[trial_id], state=State.FAILED, damage=why) for trial_id, why in damage.items()}
    described = [_record(states[trial_id], records.get(trial_id, {})) for trial_id in ids]
    columns = {
        "trial_id": pa.array(ids, pa.string()),
        **_configs(trials),
        **{name: to_arrow([one.get(name) for one in described]) for name in _names(described)},
        "recorded": pa.array([_recorded(states[i], records.get(i)) for i in ids], pa.string()),
        "rows": pa.array([lengths[trial_id] for trial_id in ids], pa.int64()),
        "stamp": pa.array([stamps.get(trial_id, "") for trial_id in ids], pa.string()),
    }
    return pa.table(columns), joined(parts)


def _recorded(state: TrialState, record: Mapping[str, Any] | None) -> str:
    """The outcome as its file has it; a trial whose record is damaged counts as failed and has no values."""
    if state.state in ("diverged", "failed") or record is None:
        return state.state
    return str(record["outcome"])


def _names(described: Iterable[Mapping[str, Any]]) -> list[str]:
    names: dict[str, None] = dict.fromkeys([*RECORDED, "diverged_step", "sessions", *PROVENANCE])
    for one in described:
        names |= dict.fromkeys(one)
    return list(names)


def _configs(trials: Sequence[SweepTrial]) -> dict[str, pa.Array]:
    """By config field its values, in the order in which a config lists them; None if a field does not apply."""
    names = in_order(trial.values for trial in trials)
    return {name: to_arrow([trial.values.get(name) for trial in trials]) for name in names}


def _record(state: TrialState, record: Mapping[str, Any]) -> dict[str, Any]:
    """What `runs` shows of a trial's record."""
    if state.damage:
        return {"error": state.damage, "sessions": 0}
    provenance = record.get("provenance", {})
    return {
        **{key: record.get(key) for key in RECORDED},
        "diverged_step": (record.get("diverged") or {}).get("step"),
        "sessions": len(record.get("sessions", [])),
        **{key: provenance.get(key) for key in PROVENANCE},
        "sources": sources_text(provenance.get("sources")),
        **{f"version.{name}": version for name, version in provenance.get("versions", {}).items()},
    }
