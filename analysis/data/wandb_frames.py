"""What was fetched from W&B as frames: columns under our names, runs in order, the protocol they follow."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from polysweep.analysis.data.address import Address, flattened
from polysweep.analysis.data.best_epochs import last_known, scores
from polysweep.analysis.data.cache import Cached, shard_columns
from polysweep.analysis.data.foreign_fields import (
    cell_fields,
    columns_of,
    field_of,
    in_order,
    looks_drawn,
    metric_of,
    origin_columns,
    origin_of_run,
    outcome_of,
    require_mapping,
)
from polysweep.analysis.data.frames import SPECIAL, RunSet, SelectionRule, empty_history, frame, to_arrow
from polysweep.analysis.data.from_store import protocol_of, with_columns_of, with_current_columns
from polysweep.sweeps.spec.sweep import Sweep
from polysweep.sweeps.store.sweep_index import from_json
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import HISTORY_COLUMNS, PROBLEM_COLUMNS, RENAMED


@dataclass(frozen=True)
class Request:
    """What was asked for with a pull; kept with it, so that `table` and the others know."""

    filters: Mapping[str, Any]
    mapping: Mapping[str, str]  # by our name theirs
    metric: str | None
    goal: str | None
    tuned: tuple[str, ...]
    ignore: tuple[str, ...]  # config fields that tell no cells apart
    spec: Mapping[str, Any] | None  # a sweep, as `sweep_index.to_json`


def pulled_of(address: Address, request: Request, cached: Cached) -> RunSet:
    """The frames of what a pull has fetched.

    Raises `UserError` if the request names what no run has, and if a finished trial lacks rows.
    """
    fetched = _Fetched(address, request, cached)
    return _of_project(fetched) if fetched.sweep is None else _of_sweep(fetched, fetched.sweep)


class _Fetched:
    """What a cache has of a project, under our names."""

    def __init__(self, address: Address, request: Request, cached: Cached) -> None:
        self.address = address
        self.request = request
        self.runs: list[dict[str, Any]] = [json.loads(text) for text in cached.runs["run"].to_pylist()]
        self.lengths: list[int] = cached.runs["rows"].to_pylist()
        self.sweep = None if request.spec is None else from_json(request.spec)
        self._cached = cached
        self._theirs = {name: ours for ours, name in request.mapping.items()}
        self.order: list[int] | None = None  # the places of the runs whose histories are shown, None for all
        flat = [flattened(run["config"]) for run in self.runs]
        require_mapping(address, request.mapping, flat, _logged(cached))
        self.configs = [columns_of(config, self._theirs) for config in flat]
        self.origins = [origin_of_run(config) for config in flat]

    @property
    def ids(self) -> list[str]:
        """The ids of the runs."""
        return [run["id"] for run in self.runs]

    def history(self, columns: Sequence[str] | None) -> pa.Table:
        """Columns of the history, all of them for None, one run after the other."""
        older = {now: before for before, now in RENAMED.items()} if self.sweep is not None else {}
        asked = None if columns is None else [self.request.mapping.get(name, name) for name in columns]
        asked = asked and [*asked, *(older[name] for name in asked if name in older)]
        table = _ordered(self._cached.history(asked))
        if self.sweep is not None:
            table = with_current_columns(table)
        named = table.rename_columns([self._theirs.get(name, name) for name in table.column_names])
        if self.order is not None:
            named = _rows_in_order(named, self.lengths, self.order)
        return named if self.sweep is None else _as_ours(named, columns)


@dataclass(frozen=True)
class _Row:
    """One row of `runs`: a run, or a trial of a sweep that has none."""

    trial_id: str
    run: Mapping[str, Any]
    config: Mapping[str, Any]
    origin: Mapping[str, Any]
    rows: int


def _of_sweep(fetched: _Fetched, sweep: Sweep) -> RunSet:
    """The trials of a sweep in the order of its spec, also those without a run."""
    protocol = protocol_of(sweep, str(fetched.address))
    places = {trial_id: at for at, trial_id in enumerate(fetched.ids)}
    fetched.order = [places[trial.trial_id] for trial in sweep.trials if trial.trial_id in places]
    if not fetched.order:
        raise UserError(f"{fetched.address}: none of its {len(places)} runs is a trial of the sweep {sweep.name!r}")
    rows = []
    for trial in sweep.trials:
        at = places.get(trial.trial_id)
        flat = trial.values
        if at is None:
            rows.append(_Row(trial.trial_id, {}, flat, {}, 0))
        else:
            rows.append(_Row(trial.trial_id, fetched.runs[at], flat, fetched.origins[at], fetched.lengths[at]))
    outcomes = [outcome_of(row.run, is_ours=True) for row in rows]
    for trial, row, outcome in zip(sweep.trials, rows, outcomes, strict=True):
        if outcome == "finished" and row.rows != trial.epochs:
            raise UserError(
                f"{fetched.address}: run {trial.trial_id} has {row.rows} epochs of {trial.epochs} of a finished trial; "
                f"polysweep sync {sweep.name} uploads what W&B lacks"
            )
    table = _table(rows, fetched.history(None), outcomes, protocol)
    return RunSet(protocol, frame(with_columns_of(sweep, table, protocol)), fetched.history)


def _of_project(fetched: _Fetched) -> RunSet:
    """All runs of a project, in the order of their values."""
    request, address = fetched.request, fetched.address
    metric, goal = metric_of(address, request.metric, request.goal, fetched.history(None))
    tuned = tuple(request.tuned)
    cell = cell_fields(address, fetched.configs, tuned, request.ignore)
    is_search = not tuned and looks_drawn(fetched.configs, cell)
    protocol = SelectionRule(
        address.name, metric, goal, cell, tuned, source=str(address), names=request.mapping, is_search=is_search
    )
    fetched.order = in_order(fetched.configs, [*cell, *tuned, "seed"])
    if is_search:  # in the order in which they began, as best so far needs it
        fetched.order.sort(key=lambda at: str(fetched.runs[at].get("created")))
    rows = [
        _Row(fetched.ids[at], fetched.runs[at], fetched.configs[at], fetched.origins[at], fetched.lengths[at])
        for at in fetched.order
    ]
    history = fetched.history(None)
    lasts = _last_values(history, [row.rows for row in rows], metric)
    outcomes = [
        "diverged" if outcome == "finished" and last is not None and not math.isfinite(last) else outcome
        for outcome, last in zip([outcome_of(row.run, bool(row.origin)) for row in rows], lasts, strict=True)
    ]
    return RunSet(protocol, frame(_table(rows, history, outcomes, protocol)), fetched.history)


def _table(rows: Sequence[_Row], history: pa.Table, outcomes: Sequence[str], protocol: SelectionRule) -> pa.Table:
    """`runs` of rows whose history is given, one run after the other."""
    lengths, runs = [row.rows for row in rows], [row.run for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row.config))
    origin = origin_columns([row.origin for row in rows])
    epochs = pa.array(_last_values(history, lengths, "epoch", "_step"), pa.float64()).cast(pa.int64(), safe=False)
    steps = _last_values(history, lengths, "step")
    return pa.table(
        {
            "trial_id": pa.array([row.trial_id for row in rows], pa.string()),
            "sweep": pa.array([protocol.name] * len(rows), pa.string()),
            "outcome": pa.array(outcomes, pa.string()),
            **{name: field_of(name, [row.config.get(name) for row in rows]) for name in names},
            **scores(history, lengths, outcomes, protocol),
            "run.name": to_arrow([run.get("name") for run in runs]),
            "run.state": to_arrow([run.get("state") for run in runs]),
            "epoch": epochs,
            "seconds": pa.array(_seconds(rows, history), pa.float64()),
            "started": to_arrow([run.get("created") for run in runs]),
            "error": to_arrow([None for _ in runs]),
            "diverged_step": pa.array(
                [
                    int(step) if outcome == "diverged" and row.origin and isinstance(step, int | float) else None
                    for row, outcome, step in zip(rows, outcomes, steps, strict=True)
                ],
                pa.int64(),
            ),
            "run.rows": pa.array(lengths, pa.int64()),
            **{name: to_arrow([row.origin.get(name) for row in rows]) for name in origin},
        }
    )


def _rows_in_order(history: pa.Table, rows: Sequence[int], order: Sequence[int]) -> pa.Table:
    """The rows of the runs at some places, in that order; `history` has all of them, `rows` each."""
    lengths = np.asarray(rows, dtype=np.int64)
    ends = np.cumsum(lengths)
    parts = [np.arange(ends[at] - lengths[at], ends[at]) for at in order]
    return history.take(pa.array(np.concatenate(parts), pa.int64()))


def _as_ours(history: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """The history of our own runs has all of our columns: W&B does not know those that were never measured."""
    wanted = {field.name: field.type for field in empty_history().schema}
    for name, kind in wanted.items():
        if name not in history.column_names and (columns is None or name in columns):
            history = history.append_column(name, pa.nulls(history.num_rows, kind))
    return history


def _logged(cached: Cached) -> list[str]:
    """The columns of the history."""
    return list(dict.fromkeys(name for shard in cached.shards for name in shard_columns(shard)))


def _last_values(history: pa.Table, lengths: Sequence[int], *names: str) -> list[Any]:
    """By run the last value of the first of the columns that there is; None without rows."""
    name = next((name for name in names if name in history.column_names), None)
    ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
    if name is None:
        return [None] * len(lengths)
    counts = np.asarray(lengths, dtype=np.int64)
    index = last_known(history[name], ends - 1, ends - counts, counts > 0)
    values: list[Any] = history[name].take(index).to_pylist()
    return [SPECIAL.get(value, None) if isinstance(value, str) else value for value in values]


def _seconds(rows: Sequence[_Row], history: pa.Table) -> list[float | None]:
    """How long the runs took: ours by their epochs, as in the Store; others by W&B's clock."""
    seconds: list[float | None] = []
    logged = history["seconds"].to_pylist() if "seconds" in history.column_names else None
    at = 0
    for row in rows:
        runtime = row.run.get("summary", {}).get("_runtime")
        if row.origin and logged is not None:
            seconds.append(float(sum(value or 0.0 for value in logged[at : at + row.rows])))
        else:
            seconds.append(float(runtime) if isinstance(runtime, int | float) else None)
        at += row.rows
    return seconds


def _ordered(history: pa.Table) -> pa.Table:
    """Our columns in their order, then all others: the order of keys in W&B's answers is drawn at random."""
    there = history.column_names
    ours = ["trial_id", "_step", *HISTORY_COLUMNS, *PROBLEM_COLUMNS]
    return history.select([*(name for name in ours if name in there), *sorted(set(there) - set(ours))])
