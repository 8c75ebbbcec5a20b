"""Runs and history from W&B, kept in a cache: `pull_wandb` fetches what has changed, `read_wandb` what was fetched."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from analysis.address import Address, flattened
from analysis.cache import EMPTY, Cache, Cached, shard_columns
from analysis.fields import cell_fields, column_of, field_of, metric_of, outcome_of, require_mapping
from analysis.frames import SPECIAL, Protocol, Pulled, empty_history, frame, joined, last_known, scores, typed
from analysis.project import Project, RemoteRun, Wanted
from analysis.stored import protocol_of, with_current_columns, with_variants
from sweeps.sweep_index import Sweep
from trainer.history import HISTORY_COLUMNS, PROBLEM_COLUMNS, RENAMED
from trainer.registry import UserError


@dataclass(frozen=True)
class Request:
    """What was asked for with a pull; kept with it, so that `table` and the others know."""

    filters: Mapping[str, Any]
    mapping: Mapping[str, str]  # by our name theirs
    metric: str | None
    goal: str | None
    tuned: tuple[str, ...]
    ignore: tuple[str, ...]  # config fields that tell no cells apart
    spec: Mapping[str, Any] | None  # a sweep, as `Sweep.as_json`


def pull_wandb(
    address: Address, request: Request, cache: Path, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Pulled:
    """Fetch the runs that are new or have changed, and of their histories the new rows.

    Raises `UserError` for an unknown project, where no run matches, and where a history has not the rows that the
    server counts: what has arrived is kept.
    """
    keeper = _cache(address, cache)
    with keeper.locked():
        old = keeper.load()
        if old.said("filters") != json.dumps(request.filters, sort_keys=True):
            old = EMPTY  # of other runs
        project = Project(address, request.filters)
        runs = project.runs()
        if not runs:
            raise UserError(f"{address}: no run matches; {project.what_there_is()}")
        known = {row["trial_id"]: row for row in old.runs.select(["trial_id", "stamp"]).to_pylist()}
        changed = [run for run in runs if known.get(run.id, {}).get("stamp") != run.stamp]
        said = {"filters": json.dumps(request.filters, sort_keys=True), "request": json.dumps(asdict(request))}
        if not changed and len(known) == len(runs) and old.said("request") == said["request"] and not old.said("short"):
            return _pulled(address, request, old)
        tables, short = _fetch(project, old, changed, progress)
        rows = {run_id: table.num_rows for run_id, table in tables.items()}
        described = pa.table(
            {
                "trial_id": pa.array([run.id for run in changed], pa.string()),
                "stamp": pa.array([run.stamp if rows[run.id] == run.rows else "" for run in changed], pa.string()),
                "rows": pa.array([rows[run.id] for run in changed], pa.int64()),
                "run": pa.array([json.dumps(vars(run)) for run in changed], pa.string()),
            }
        )
        history = _together(tables)
        made = old.updated([run.id for run in runs], described, history)
        try:
            if short:
                raise UserError(_short(address, short))
            pulled = _pulled(address, request, made)
        except UserError:  # what was fetched is kept, and what is wrong with the request is not
            good = said["request"] if short else old.said("request")
            keeper.save(made, **{**said, "request": good}, short=", ".join(short))
            raise
        keeper.save(made, **said, short="")
        return pulled


def read_wandb(address: Address, cache: Path) -> Pulled:
    """What the last pull fetched, without asking the server.

    Raises `UserError` where nothing was pulled yet, or not all of it.
    """
    found = _cache(address, cache).load()
    if not found.said("request"):
        raise UserError(f"{address} has not been pulled; run: polysweep pull {address}")
    if found.said("short"):
        raise UserError(_short(address, found.said("short").split(", ")))
    return _pulled(address, _request(found), found)


def last_request(address: Address, cache: Path) -> Request | None:
    """What was asked for with the last pull, None where there was none."""
    found = _cache(address, cache).load()
    return _request(found) if found.said("request") else None


def _request(cached: Cached) -> Request:
    given = json.loads(cached.said("request"))
    name = given.pop("name", None)
    if isinstance(given["spec"], str):  # of an older version: the text of a spec
        from sweeps.spec import SweepSpec

        spec = SweepSpec.parse(given["spec"], f"spec of {name}", name or "sweep", recorded=True)
        given["spec"] = spec.as_sweep().as_json()
    return Request(**{**given, "tuned": tuple(given["tuned"]), "ignore": tuple(given["ignore"])})


def _cache(address: Address, cache: Path) -> Cache:
    return Cache(cache, f"{os.environ.get('WANDB_BASE_URL') or 'https://api.wandb.ai'} {address}")


def _short(address: Address, runs: Sequence[str]) -> str:
    return (
        f"{address}: of {len(runs)} runs not every history row has arrived that the server counts "
        f"({', '.join(runs[:5])}{', ...' if len(runs) > 5 else ''}); pull again"
    )


def _ordered(history: pa.Table) -> pa.Table:
    """Our columns in their order, then all others: the order of keys in W&B's answers is drawn at random."""
    there = history.column_names
    ours = ["trial_id", "_step", *HISTORY_COLUMNS, *PROBLEM_COLUMNS]
    return history.select([*(name for name in ours if name in there), *sorted(set(there) - set(ours))])


def _together(tables: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of all runs, with the run of each."""
    some = {run_id: table for run_id, table in tables.items() if table.num_rows}
    if not some:
        return empty_history().select(["trial_id"])
    owners = np.repeat(list(some), [table.num_rows for table in some.values()])
    return joined(list(some.values())).add_column(0, "trial_id", pa.array(owners, pa.string()))


def _fetch(
    project: Project, old: Cached, changed: Sequence[RemoteRun], progress: Callable[[int, int], None]
) -> tuple[dict[str, pa.Table], list[str]]:
    """The histories of runs that have changed, and those that did not come to what the server counts.

    What is there of a run that has only grown stays; all of any other is fetched.
    """
    past = _past(old, changed)
    wanted = []
    for run in changed:
        kept = past.get(run.id)
        if kept is None:
            wanted += [Wanted(run.id, 0, max(run.last_step, 0), run.rows)] if run.rows else []
        else:  # its last row comes again, to see whether it is still the same
            first = int(kept["_step"][-1].as_py())
            wanted.append(Wanted(run.id, first, max(run.last_step, first), run.rows - kept.num_rows + 1))
    arrived = 0

    def count(runs: int) -> None:
        nonlocal arrived
        arrived += runs
        progress(arrived, len(wanted))

    new = dict(project.histories(wanted, count))
    found, wrong = {}, []
    for run in changed:
        kept, come = past.get(run.id), new.get(run.id, pa.table({}))
        is_same = kept is None or (come.num_rows > 0 and _row(kept, -1) == _row(come, 0))
        found[run.id] = come if kept is None else joined([kept, come.slice(1)])
        if not is_same or found[run.id].num_rows != run.rows:
            wrong.append(run)
    if wrong:  # it was written anew, or is being written: once more, whole
        again = [Wanted(run.id, 0, max(run.last_step, 0), run.rows) for run in wrong if run.rows]
        found |= dict(project.histories(again, lambda _: None))
        found |= {run.id: pa.table({}) for run in wrong if not run.rows}
    return found, [run.id for run in wrong if found[run.id].num_rows != run.rows and run.state != "running"]


def _row(table: pa.Table, at: int) -> str:
    """A row as text that can be compared: a NaN equals a NaN, and a column that it lacks is no column."""
    row = table.slice(at % table.num_rows, 1).to_pylist()[0]
    return repr(sorted((name, float(v) if isinstance(v, int) else v) for name, v in row.items() if v is not None))


def _past(old: Cached, changed: Sequence[RemoteRun]) -> dict[str, pa.Table]:
    """Of runs that have only grown since, the rows that are there."""
    places = old.places
    lengths = old.runs["rows"].to_pylist()
    ends = np.cumsum(lengths)
    grown = []
    for run in changed:
        at = places.get(run.id)
        if at is None or not lengths[at] or lengths[at] > run.rows:
            continue
        if json.loads(old.runs["run"][at].as_py())["created"] == run.created:
            grown.append((run.id, at))
    if not grown:
        return {}
    history = old.history()
    if "_step" not in history.column_names:
        return {}
    return {
        run_id: history.slice(int(ends[at] - lengths[at]), lengths[at]).drop_columns(["trial_id"])
        for run_id, at in grown
    }


# From what was fetched to frames.


def _pulled(address: Address, request: Request, cached: Cached) -> Pulled:
    runs = [json.loads(text) for text in cached.runs["run"].to_pylist()]
    sweep = None if request.spec is None else Sweep.of_json(request.spec)
    theirs = {name: ours for ours, name in request.mapping.items()}
    configs = [flattened(run["config"]) for run in runs]
    require_mapping(address, request.mapping, configs, _logged(cached))
    configs = [{column_of(theirs.get(key, key)): value for key, value in config.items()} for config in configs]

    def load(columns: Sequence[str] | None) -> pa.Table:
        older = {now: before for before, now in RENAMED.items()} if request.spec is not None else {}
        asked = None if columns is None else [request.mapping.get(name, name) for name in columns]
        asked = asked and [*asked, *(older[name] for name in asked if name in older)]
        table = _ordered(cached.history(asked))
        if request.spec is not None:
            table = with_current_columns(table)
        named = table.rename_columns([theirs.get(name, name) for name in table.column_names])
        return named if chosen is None else _as_ours(_rows_in_order(named, cached, chosen), columns)

    chosen: list[int] | None = None
    history = load(None)
    lengths = cached.runs["rows"].to_pylist()
    ids = [run["id"] for run in runs]
    if sweep is not None:
        protocol = protocol_of(sweep, str(address))
        places = {trial_id: at for at, trial_id in enumerate(ids)}
        wanted = [trial.trial_id for trial in sweep.trials]
        chosen = [places[trial_id] for trial_id in wanted if trial_id in places]
        if not chosen:
            raise UserError(f"{address}: none of its {len(ids)} runs is a trial of the sweep {sweep.name!r}")
        lengths = [lengths[places[trial_id]] if trial_id in places else 0 for trial_id in wanted]
        history = load(None)
        by_id = dict(zip(ids, runs, strict=True))
        runs = [by_id.get(trial_id, {}) for trial_id in wanted]
        configs = [dict(trial.values) for trial in sweep.trials]
        ids = wanted
    if sweep is None:
        metric, goal = metric_of(address, request.metric, request.goal, history)
    else:
        metric, goal = sweep.metric.name, sweep.metric.goal
    outcomes = [outcome_of(run, sweep is not None) for run in runs]
    if sweep is None:
        tuned = tuple(request.tuned)
        cell = cell_fields(address, configs, tuned, request.ignore)
        protocol = Protocol(address.name, metric, goal, cell, tuned, source=str(address), names=request.mapping)
        lasts = _last_values(history, lengths, metric)
        outcomes = [
            "diverged" if outcome == "finished" and value is not None and not math.isfinite(value) else outcome
            for outcome, value in zip(outcomes, lasts, strict=True)
        ]
    else:
        _require_whole(address, sweep, outcomes, lengths)
    names = list(dict.fromkeys(name for config in configs for name in config))
    table = pa.table(
        {
            "trial_id": pa.array(ids, pa.string()),
            "sweep": pa.array([protocol.name] * len(ids), pa.string()),
            "outcome": pa.array(outcomes, pa.string()),
            **{name: field_of(name, [config.get(name) for config in configs]) for name in names},
            **scores(history, lengths, outcomes, protocol),
            "run.name": typed([run.get("name") for run in runs]),
            "run.state": typed([run.get("state") for run in runs]),
            "epoch": pa.array(_last_values(history, lengths, "epoch", "_step"), pa.float64()).cast(
                pa.int64(), safe=False
            ),
            "seconds": pa.array(_seconds(runs), pa.float64()),
            "started": typed([run.get("created") for run in runs]),
            "error": typed([None for _ in runs]),
            "diverged_step": pa.array([None] * len(runs), pa.int64()),
            "run.rows": pa.array(lengths, pa.int64()),
        }
    )
    if sweep is not None:
        table = with_variants(table, sweep, protocol)
    return Pulled(protocol, frame(table), load)


def _rows_in_order(history: pa.Table, cached: Cached, chosen: Sequence[int]) -> pa.Table:
    lengths = np.asarray(cached.runs["rows"].to_pylist(), dtype=np.int64)
    ends = np.cumsum(lengths)
    parts = [np.arange(ends[at] - lengths[at], ends[at]) for at in chosen]
    return history.take(pa.array(np.concatenate(parts)))


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


def _require_whole(address: Address, sweep: Sweep, outcomes: Sequence[str], lengths: Sequence[int]) -> None:
    for trial, outcome, rows in zip(sweep.trials, outcomes, lengths, strict=True):
        if outcome == "finished" and rows != trial.epochs:
            raise UserError(
                f"{address}: run {trial.trial_id} has {rows} epochs of {trial.epochs} of a finished trial; "
                f"polysweep sync {sweep.name} uploads what W&B lacks"
            )


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


def _seconds(runs: Sequence[Mapping[str, Any]]) -> list[float | None]:
    found = [run.get("summary", {}).get("_runtime") for run in runs]
    return [float(value) if isinstance(value, int | float) else None for value in found]


def counts(pulled: Pulled) -> str:
    """`70 finished, 2 diverged`."""
    found = Counter(pulled.runs["outcome"].tolist())
    return ", ".join(f"{count} {outcome}" for outcome, count in found.most_common())
