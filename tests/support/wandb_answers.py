"""Runs as the loopback W&B server keeps them, and its answers about one."""

from __future__ import annotations

import base64
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from graphql import (
    FieldNode,
    FragmentSpreadNode,
    ListValueNode,
    ObjectValueNode,
    SelectionSetNode,
    ValueNode,
    VariableNode,
)
from graphql.utilities import value_from_ast_untyped

ENTITY = "lab"
MOST_SAMPLES = 1_500
T = TypeVar("T")


class SpentError(Exception):
    """The id of a run that was deleted: the server answers 409."""


ATTRIBUTES = ("displayName", "groupName", "jobType", "tags", "notes", "description", "sweep")
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda have, want: want in have if isinstance(have, list) else have == want,
    "$ne": lambda have, want: want not in have if isinstance(have, list) else have != want,
    "$in": lambda have, want: any(one in want for one in have) if isinstance(have, list) else have in want,
    "$nin": lambda have, want: all(one not in want for one in have) if isinstance(have, list) else have not in want,
    "$gt": lambda have, want: have is not None and have > want,
    "$gte": lambda have, want: have is not None and have >= want,
    "$lt": lambda have, want: have is not None and have < want,
    "$lte": lambda have, want: have is not None and have <= want,
}


def now() -> str:
    """The time as the server writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Run:
    """What the server knows of one run."""

    name: str
    project: str
    entity: str = ENTITY
    config: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    summary: str = "{}"
    events: int = 0
    logs: int = 0
    exit_code: int | None = None
    complete: bool = False
    preempting: bool = False
    silent: bool = False  # its client has stopped beating without an end: the server calls it crashed
    upserts: int = 0
    lost: int = 0  # rows that are counted and never delivered
    created: str = field(default_factory=now)
    heartbeat: str = field(default_factory=now)

    @property
    def storage_id(self) -> str:
        """The id that is unique over all projects."""
        return base64.b64encode(f"Run:v1:{self.name}:{self.project}:{self.entity}".encode()).decode()

    @property
    def state(self) -> str:
        """Running while its file stream is open, then what its exit code says, and whether it was preempted."""
        if not self.complete:
            return "crashed" if self.silent else "preempting" if self.preempting else "running"
        if self.exit_code == 0:
            return "finished"
        return "preempted" if self.preempting else "failed"

    def rows(self) -> list[dict[str, Any]]:
        """The history, with NaN and infinities as strings."""
        return [_finite(json.loads(line)) for line in self.history]

    def resume(self) -> None:
        """A client has opened the run again, or sends more of it."""
        self.complete, self.silent, self.exit_code, self.heartbeat = False, False, None, now()


def user() -> dict[str, Any]:
    return {
        "id": "1", "entity": ENTITY, "username": ENTITY, "name": ENTITY, "flags": "{}", "admin": False, "email": "",
        "photoUrl": "",
    }  # fmt: skip


def bucket(run: Run) -> dict[str, Any]:
    """A run as the queries see it; what costs something is a function."""
    client = run.config.get("_wandb", {}).get("value", {})

    def tail(_arguments: dict[str, Any]) -> str:
        return json.dumps([json.dumps(_finite(json.loads(line))) for line in run.history[-1:]])

    def keys(_arguments: dict[str, Any]) -> dict[str, Any] | None:
        steps = [sent_line(line)[0] for line in run.history[-1:] if '"_step"' in line]
        return {"lastStep": steps[0], "sets": [], "keys": {}} if steps else None

    def summary(_arguments: dict[str, Any]) -> str:
        return sent_line(run.summary)[1]

    def history(arguments: dict[str, Any]) -> list[str]:
        """Rows with minStep <= step < maxStep, evenly thinned out to `samples`."""
        low, high = _bounds(arguments)
        there = [sent_line(line) for line in run.history]
        samples = min(arguments.get("samples") or 500, MOST_SAMPLES)
        return _thinned([text for step, text in there if not isinstance(step, int) or low <= step < high], samples)

    def sampled(arguments: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """For each spec the rows up to and with its maxStep that have all of its keys, with only these."""
        answers = []
        for spec in map(json.loads, arguments["specs"]):
            last = {"maxStep": spec["maxStep"] + 1} if "maxStep" in spec else {}
            rows = [row for row in _between(run.rows(), spec | last) if all(key in row for key in spec["keys"])]
            answers.append([{key: row[key] for key in spec["keys"]} for row in _thinned(rows, spec.get("samples"))])
        return answers

    return {
        "id": run.storage_id, "name": run.name, "projectId": "1", "displayName": run.attributes.get("displayName"),
        "description": run.attributes.get("description"), "notes": run.attributes.get("notes"),
        "group": run.attributes.get("groupName"), "jobType": run.attributes.get("jobType"),
        "tags": run.attributes.get("tags", []), "state": run.state, "commit": None, "readOnly": False,
        "sweepName": run.attributes.get("sweep"), "user": user(),
        "createdAt": run.created, "heartbeatAt": run.heartbeat,
        "project": {"id": f"{run.entity}/{run.project}", "name": run.project,
                    "entity": {"id": run.entity, "name": run.entity}},
        "historyLineCount": len(run.history) + run.lost, "eventsLineCount": run.events, "logLineCount": run.logs,
        "historyTail": tail, "eventsTail": "[]", "summaryMetrics": summary, "systemMetrics": "{}",
        "config": json.dumps(run.config), "wandbConfig": json.dumps({"t": client.get("t")}),
        "historyKeys": keys,
        "history": history, "sampledHistory": sampled, "events": [], "parquetHistory": None, "stopped": False,
    }  # fmt: skip


def select(
    value: Any,
    wanted: SelectionSetNode | None,
    fragments: Mapping[str, SelectionSetNode],
    variables: Mapping[str, Any],
    missing: list[str],
) -> Any:
    """Of a value what a query wants; names that nobody knows are null and go to `missing`."""
    if wanted is None or value is None:
        return value
    if isinstance(value, list):
        return [select(one, wanted, fragments, variables, missing) for one in value]
    found: dict[str, Any] = {}
    for selection in wanted.selections:
        if isinstance(selection, FragmentSpreadNode):
            found |= select(value, fragments[selection.name.value], fragments, variables, missing)
        elif isinstance(selection, FieldNode):
            name = selection.name.value
            if name not in value:
                missing.append(name)
            one = value.get(name)
            if callable(one):
                one = one({a.name.value: _argument(a.value, variables) for a in selection.arguments or ()})
            key = selection.alias.value if selection.alias else name
            found[key] = select(one, selection.selection_set, fragments, variables, missing)
    return found


def _argument(node: ValueNode, variables: Mapping[str, Any]) -> Any:
    """The value of an argument; variables that are not given are None."""
    if isinstance(node, VariableNode):
        return variables.get(node.name.value)
    if isinstance(node, ObjectValueNode):
        return {one.name.value: _argument(one.value, variables) for one in node.fields}
    if isinstance(node, ListValueNode):
        return [_argument(one, variables) for one in node.values]
    return value_from_ast_untyped(node)


def value_of(run: Run, key: str) -> Any:
    """What a filter or an order means by a key."""
    head, _, tail = key.partition(".")
    if head == "config" and tail:
        return run.config.get(tail.removesuffix(".value"), {}).get("value")
    if head in ("summary_metrics", "summaryMetrics") and tail:
        return json.loads(run.summary).get(tail)
    plain = {
        "name": run.name, "state": run.state, "tags": run.attributes.get("tags", []), "created_at": run.created,
        "group": run.attributes.get("groupName"), "display_name": run.attributes.get("displayName"),
        "job_type": run.attributes.get("jobType"), "heartbeat_at": run.heartbeat,
    }  # fmt: skip
    alias = {"displayName": "display_name", "jobType": "job_type", "createdAt": "created_at"}.get(key, key)
    if alias not in plain:
        raise LookupError(f"the loopback server cannot filter or sort by {key!r}")
    return plain[alias]


def _matches(run: Run, filters: Mapping[str, Any]) -> bool:
    def holds(key: str, want: Any) -> bool:
        if key in ("$and", "$or"):
            return (all if key == "$and" else any)(_matches(run, one) for one in want)
        tests = want if isinstance(want, dict) else {"$eq": want}
        for name in tests:
            if name not in COMPARISONS:
                raise LookupError(f"the loopback server does not know the filter {name!r}")
        return all(COMPARISONS[name](value_of(run, key), other) for name, other in tests.items())

    return all(holds(key, want) for key, want in filters.items())


def chosen(runs: Mapping[str, Run], filters: str | None) -> list[Run]:
    return [run for run in runs.values() if _matches(run, json.loads(filters or "{}"))]


def sortable(value: Any) -> tuple[int, Any]:
    return (0, 0) if value is None else (1, value)


def _bounds(given: Mapping[str, Any]) -> tuple[float, float]:
    return given.get("minStep") or 0, math.inf if given.get("maxStep") is None else given["maxStep"]


@functools.lru_cache(maxsize=1_000_000)
def sent_line(line: str) -> tuple[int, str]:
    """The step of a row of a history, or of a summary, and the row as it is sent."""
    row = json.loads(line)
    special = "NaN" in line or "Infinity" in line
    return row.get("_step", 0), json.dumps(_finite(row)) if special else line


def _between(rows: Sequence[dict[str, Any]], bounds: Mapping[str, Any]) -> list[dict[str, Any]]:
    low, high = _bounds(bounds)
    return [row for row in rows if low <= row.get("_step", 0) < high]


def _thinned(rows: list[T], samples: int | None) -> list[T]:
    if not samples or len(rows) <= samples:
        return rows
    return [rows[i * len(rows) // samples] for i in range(samples)]


def _finite(value: Any) -> Any:
    """NaN and infinities as the strings that the server makes of them."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
