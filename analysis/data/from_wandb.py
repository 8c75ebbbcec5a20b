"""Runs and history from W&B, kept in a cache: `pull_wandb` fetches what has changed, `read_wandb` what was fetched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa

from polysweep.analysis.data.address import Address
from polysweep.analysis.data.cache import EMPTY, Cache, Cached
from polysweep.analysis.data.foreign_text import short
from polysweep.analysis.data.frames import RunSet, empty_history, joined
from polysweep.analysis.data.wandb_api import HistorySlice, Project, RemoteRun, unreadable
from polysweep.analysis.data.wandb_frames import Request, pulled_of
from polysweep.sweeps.store.sweep_index import to_json
from polysweep.trainer.errors import UserError

__all__ = ["Request", "last_request", "pull_wandb", "read_wandb"]


def pull_wandb(
    address: Address, request: Request, cache: Path, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> RunSet:
    """Fetch the runs that are new or have changed, and of their histories the new rows.

    Raises `UserError` for an unknown project, if no run matches, and if a history does not have as many rows as the
    server counts; what has arrived is kept.
    """
    keeper = _cache(address, cache)
    with keeper.locked():
        old = keeper.load()
        if old.metadata("filters") != json.dumps(request.filters, sort_keys=True):
            old = EMPTY  # of other runs
        project = Project(address, request.filters)
        runs = project.runs()
        if not runs:
            raise UserError(f"{address}: no run matches; {project.what_there_is()}")
        before = {row["trial_id"]: row for row in old.runs.select(["trial_id", "stamp"]).to_pylist()}
        changed = [run for run in runs if before.get(run.id, {}).get("stamp") != run.stamp]
        metadata = {"filters": json.dumps(request.filters, sort_keys=True), "request": json.dumps(asdict(request))}
        if (
            not changed
            and len(before) == len(runs)
            and old.metadata("request") == metadata["request"]
            and not old.metadata("short")
        ):
            return pulled_of(address, request, old)
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
        updated = old.updated([run.id for run in runs], described, history)
        try:
            if short:
                raise UserError(_short(address, short))
            pulled = pulled_of(address, request, updated)
        except UserError:  # what was fetched is kept, and what is wrong with the request is not
            good = metadata["request"] if short else old.metadata("request")
            keeper.save(updated, **{**metadata, "request": good}, short=", ".join(short))
            raise
        keeper.save(updated, **metadata, short="")
        return pulled


def read_wandb(address: Address, cache: Path) -> RunSet:
    """What the last pull fetched, without asking the server.

    Raises `UserError` if the address has not been pulled yet, or not completely.
    """
    cached = _cache(address, cache).load()
    if not cached.metadata("request"):
        raise UserError(f"{address} has not been pulled; run: polysweep pull {address}")
    if cached.metadata("short"):
        raise UserError(_short(address, cached.metadata("short").split(", ")))
    return pulled_of(address, _request(cached), cached)


def last_request(address: Address, cache: Path) -> Request | None:
    """What was asked for with the last pull, None where there was none."""
    cached = _cache(address, cache).load()
    return _request(cached) if cached.metadata("request") else None


def _request(cached: Cached) -> Request:
    fields = json.loads(cached.metadata("request"))
    name = fields.pop("name", None)
    if isinstance(fields["spec"], str):  # of an older version: the text of a spec
        from polysweep.sweeps.spec.spec import SweepSpec

        spec = SweepSpec.parse(fields["spec"], f"spec of {name}", name or "sweep", recorded=True)
        fields["spec"] = to_json(spec.as_sweep())
    return Request(**{**fields, "tuned": tuple(fields["tuned"]), "ignore": tuple(fields["ignore"])})


def _cache(address: Address, cache: Path) -> Cache:
    return Cache(cache, f"{os.environ.get('WANDB_BASE_URL') or 'https://api.wandb.ai'} {address}")


def _short(address: Address, runs: Sequence[str]) -> str:
    return (
        f"{address}: of {len(runs)} runs not every history row has arrived that the server counts "
        f"({', '.join(map(short, runs[:5]))}{', ...' if len(runs) > 5 else ''}); pull again"
    )


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
            wanted += [HistorySlice(run.id, 0, max(run.last_step, 0), run.rows)] if run.rows else []
        else:  # its last row comes again, to see whether it is still the same
            first = int(kept["_step"][-1].as_py())
            wanted.append(HistorySlice(run.id, first, max(run.last_step, first), run.rows - kept.num_rows + 1))
    arrived = 0

    def count(runs: int) -> None:
        nonlocal arrived
        arrived += runs
        progress(arrived, len(wanted))

    new = dict(project.histories(wanted, count))
    histories, wrong = {}, []
    for run in changed:
        kept, come = past.get(run.id), new.get(run.id, pa.table({}))
        _require_steps(project.address, run.id, come)
        is_same = kept is None or (come.num_rows > 0 and _row(kept, -1) == _row(come, 0))
        histories[run.id] = come if kept is None else joined([kept, come.slice(1)])
        if not is_same or histories[run.id].num_rows != run.rows:
            wrong.append(run)
    if wrong:  # it was rewritten, or is being written: fetch all of it again
        again = [HistorySlice(run.id, 0, max(run.last_step, 0), run.rows) for run in wrong if run.rows]
        histories |= dict(project.histories(again, lambda _: None))
        histories |= {run.id: pa.table({}) for run in wrong if not run.rows}
    return histories, [run.id for run in wrong if histories[run.id].num_rows != run.rows and run.state != "running"]


def _require_steps(address: Address, run: str, history: pa.Table) -> None:
    """Raise `UserError` if the steps of a history are no numbers: nothing could be said of its order."""
    kind = history["_step"].type if "_step" in history.column_names else pa.int64()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise UserError(unreadable(address, run, "its _step is not a number"))


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
