"""A W&B project through the transport of the real `wandb.Api`: every run once, every history row, many to a request.

`Api.runs` can repeat or miss runs that change between its pages, `Run.history` samples, and `Run.scan_history` costs
three requests a run. Here what was seen is checked against the server's own counts, and the histories of many runs come
with one request, by the field that `scan_history` reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from polysweep.analysis.data.address import Address
from polysweep.analysis.data.foreign_text import fit, listed, short
from polysweep.analysis.data.frames import joined
from polysweep.analysis.data.wandb_histories import lines_of, parsed
from polysweep.sweeps.tracking.summary_run import is_summary
from polysweep.sweeps.tracking.wandb_server import open_api
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import first_line, one_line
from polysweep.trainer.wandb_runs import logged_in

TIMEOUT_SECONDS: Final = 60
RUNS_PER_PAGE: Final = 1_000
ROWS_PER_REQUEST: Final = 5_000
RUNS_PER_REQUEST: Final = 100
WINDOW: Final = 1_000  # steps: a request for so many steps and as many samples is never sampled
REQUESTS_AT_ONCE: Final = 4
PASSES: Final = 20

_RUNS: Final = """
query Runs($project: String!, $entity: String!, $cursor: String, $perPage: Int, $order: String, $filters: JSONString) {
    project(name: $project, entityName: $entity) {
        runCount(filters: $filters)
        runs(filters: $filters, after: $cursor, first: $perPage, order: $order) {
            edges {
                node {
                    name displayName state group jobType tags createdAt heartbeatAt historyLineCount historyKeys
                    config summaryMetrics
                }
                cursor
            }
            pageInfo { endCursor hasNextPage }
        }
    }
}
"""


@dataclass(frozen=True)
class RemoteRun:
    """A run as the server lists it."""

    id: str
    name: str
    state: str
    tags: tuple[str, ...]
    created: str
    rows: int
    last_step: int
    config: dict[str, Any]
    summary: dict[str, Any]
    stamp: str  # another one where rows, state, config, tags or summary are others


@dataclass(frozen=True)
class HistorySlice:
    """A part of a run's history: its rows with first <= _step <= last, `rows` of them."""

    run: str
    first: int
    last: int
    rows: int


class Project:
    """The runs of an address."""

    def __init__(self, address: Address, filters: Mapping[str, Any]) -> None:
        """Raises `UserError` without a key, and if no server accepts it."""
        if not logged_in():
            raise UserError(f"{address}: no W&B key; set WANDB_API_KEY, or run `wandb login`")
        self.address = address
        self._tagged = [{"tags": address.tag}] if address.tag else []
        self._given = [dict(filters)] if filters else []
        self._api, _ = open_api(TIMEOUT_SECONDS, address.entity, f"{address}: ")

    def runs(self) -> list[RemoteRun]:
        """Every run once, in the order of their creation, whatever changes between the pages.

        Raises `UserError` for an unknown project, and where the runs do not come to what the server counts.
        """
        filters = [*self._tagged, *self._given]
        seen: dict[str, RemoteRun] = {}
        for _ in range(PASSES):
            pages = list(self._pages(_unseen(filters, seen)))
            is_whole = not seen and _is_of_one_moment(pages)
            seen |= {run.id: run for page, _ in pages for run in page}
            left = pages[-1][1]  # how many the server counts that had not been seen before this pass
            if is_whole or (left == 0 and self._count(filters) == len(seen)):
                return sorted(_trials(seen.values()), key=lambda run: (run.created, run.id))
            if left == 0:  # all have been seen, and the server counts fewer: some were deleted meanwhile
                seen = self._still_there(filters, seen)
        raise UserError(
            f"{self.address}: the server's run count does not match the runs it lists, after {PASSES} attempts; "
            "pull again"
        )

    def _count(self, filters: Sequence[Mapping[str, Any]]) -> int:
        """How many runs match, as the server counts them."""
        return next(self._pages(filters, first=1))[1]

    def _still_there(self, filters: Sequence[Mapping[str, Any]], seen: Mapping[str, RemoteRun]) -> dict[str, RemoteRun]:
        """Those of the runs that the server still lists."""
        listed_now = {run.id for page, _ in self._pages([*filters, {"name": {"$in": list(seen)}}]) for run in page}
        return {run_id: run for run_id, run in seen.items() if run_id in listed_now}

    def what_there_is(self) -> str:
        """Of a project of which no run matches: how many runs there are, their states and tags."""
        runs = _trials(run for page, _ in self._pages([]) for run in page)
        tags = {tag for run in runs for tag in run.tags}
        states = {run.state for run in runs}
        keys = {key for run in runs for key in run.config}
        return (
            f"{self.address.entity}/{self.address.project} has {len(runs)} runs; "
            f"states: {listed(states)}; tags: {listed(tags)}; config: {listed(keys)}"
        )

    def _pages(
        self, filters: Sequence[Mapping[str, Any]], first: int | None = None
    ) -> Iterator[tuple[list[RemoteRun], int]]:
        """Pages of runs, each with the server's count of all that match."""
        chosen = {"$and": list(filters)} if len(filters) > 1 else (dict(filters[0]) if filters else {})
        cursor = None
        while True:
            variables = {
                "project": self.address.project, "entity": self.address.entity, "cursor": cursor,
                "perPage": first or RUNS_PER_PAGE,
                "order": "+created_at", "filters": json.dumps(chosen),
            }  # fmt: skip
            project = self._ask(_RUNS, variables).get("project")
            if project is None:
                raise UserError(f"{self.address}: {self._unknown()}")
            page = project["runs"]
            yield [self._run(edge["node"]) for edge in page["edges"]], int(project["runCount"])
            cursor = page["pageInfo"]["endCursor"]
            if first == 1 or not page["pageInfo"]["hasNextPage"] or not page["edges"]:
                return

    def _run(self, node: Mapping[str, Any]) -> RemoteRun:
        """A run of a page. Raises `UserError` if what the server says of it cannot be read."""
        try:
            return _run(node)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(unreadable(self.address, str(node.get("name")), _first_line(error))) from None

    def _unknown(self) -> str:
        entity = self.address.entity
        try:
            names = [project.name for project in self._api.projects(entity, per_page=200)]
        except Exception:
            names = []
        if names:
            return f"no such project; {entity} has: {listed(names)}"
        return f"no such project, and none of {entity!r} can be seen; the key is of {self._api.default_entity!r}"

    def _ask(self, query: str, variables: Mapping[str, Any], parse: Callable[[str], Any] = json.loads) -> Any:
        """The answer to a query. wandb's client repeats what the server refuses for now, after its Retry-After."""
        try:
            answer = self._api._service_api.execute_graphql(query, dict(variables), parse=parse)
        except Exception as error:
            raise UserError(f"{self.address}: the W&B server gave no answer: {_first_line(error)}") from None
        return answer

    def histories(
        self, wanted: Sequence[HistorySlice], progress: Callable[[int], None]
    ) -> Iterator[tuple[str, pa.Table]]:
        """By run its rows in the order of their steps. `progress` is told of every run that has arrived."""
        pool = ThreadPoolExecutor(REQUESTS_AT_ONCE)
        try:
            for batch, tables in zip(_batches(wanted), pool.map(self._batch, _batches(wanted)), strict=True):
                for one, table in zip(batch, tables, strict=True):
                    if table.num_rows != one.rows and one.last - one.first >= WINDOW:
                        table = self._windows(one)  # noqa: PLW2901  # the server thinned it out
                    yield one.run, table
                progress(len(batch))
        finally:
            pool.shutdown(cancel_futures=True)  # of an error nobody asks what else was to come

    def _windows(self, wanted: HistorySlice) -> pa.Table:
        """A long history, in pieces that are never sampled."""
        starts = range(wanted.first, wanted.last + 1, WINDOW)
        pieces = [HistorySlice(wanted.run, at, min(at + WINDOW - 1, wanted.last), WINDOW) for at in starts]
        return joined([table for batch in _batches(pieces) for table in self._batch(batch)])

    def _batch(self, batch: Sequence[HistorySlice]) -> list[pa.Table]:
        """The histories of a batch, in one request: one alias a run, its rows as lines of JSON."""
        fields = " ".join(
            f"r{at}: run(name: {json.dumps(one.run)}) "
            f"{{ history(minStep: {one.first}, maxStep: {one.last + 1}, samples: {max(one.rows, WINDOW)}) }}"
            for at, one in enumerate(batch)
        )
        query = (
            "query Histories($project: String!, $entity: String!) "
            f"{{ project(name: $project, entityName: $entity) {{ {fields} }} }}"
        )
        variables = {"project": self.address.project, "entity": self.address.entity}
        try:
            lines = lines_of(self._ask(query, variables, parse=str.encode), len(batch))
            table = parsed(pa.concat_arrays(lines))
        except (AttributeError, TypeError, ValueError, pa.ArrowException) as error:
            if isinstance(error, UserError):
                raise
            if len(batch) == 1:
                raise UserError(unreadable(self.address, batch[0].run, _first_line(error))) from None
            return [self._batch([one])[0] for one in batch]  # it is told whose history that is
        ends = np.cumsum([len(run) for run in lines])
        return [table.slice(int(end) - len(run), len(run)) for end, run in zip(ends, lines, strict=True)]


def _trials(runs: Iterable[RemoteRun]) -> list[RemoteRun]:
    """Without those that have the plots of a report: these are no trials."""
    return [run for run in runs if not is_summary(run.id)]


def unreadable(address: Address, run: str, why: str) -> str:
    """What is said of a run that cannot be read, and how to go on without it."""
    without = json.dumps({"name": {"$ne": run}})
    return f"{address}: run {short(run)} cannot be read: {short(why)}; --filter '{without}' leaves it out"


def _batches(wanted: Sequence[HistorySlice]) -> Iterator[list[HistorySlice]]:
    batch: list[HistorySlice] = []
    rows = 0
    for one in wanted:
        if batch and (rows + one.rows > ROWS_PER_REQUEST or len(batch) == RUNS_PER_REQUEST):
            yield batch
            batch, rows = [], 0
        batch.append(one)
        rows += one.rows
    if batch:
        yield batch


def _is_of_one_moment(pages: Sequence[tuple[list[RemoteRun], int]]) -> bool:
    """Whether one page has every run that the server counted with it."""
    return len(pages) == 1 and pages[0][1] == len(pages[0][0])


def _unseen(filters: Sequence[Mapping[str, Any]], seen: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*filters, {"name": {"$nin": list(seen)}}] if seen else list(filters)


def _run(node: Mapping[str, Any]) -> RemoteRun:
    config = fit(
        {
            key: value["value"] if isinstance(value, Mapping) and "value" in value else value
            for key, value in json.loads(node["config"] or "{}").items()
            if key not in ("_wandb", "wandb_version")
        }
    )
    summary = json.loads(node["summaryMetrics"] or "{}")
    state = [
        node[key]
        for key in ("state", "tags", "config", "historyLineCount", "createdAt", "heartbeatAt", "summaryMetrics")
    ]
    last = (node["historyKeys"] or {}).get("lastStep", summary.get("_step", -1))
    if isinstance(last, bool) or not isinstance(last, int | float):
        raise ValueError(f"its last _step is {last!r}, which is not a number")
    return RemoteRun(
        node["name"],
        short(node["displayName"] or node["name"]),
        short(node["state"]),
        tuple(one_line(tag) for tag in node["tags"] or ()),
        node["createdAt"] or "",
        int(node["historyLineCount"] or 0),
        int(last),
        config,
        summary,
        hashlib.sha256(json.dumps(state).encode()).hexdigest(),
    )


def _first_line(error: Exception) -> str:
    return short(first_line(error))
