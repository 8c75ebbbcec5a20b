"""What the loopback W&B server knows of all projects, and its answers to the GraphQL queries of the real client."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Mapping
from typing import Any

from graphql import (
    FragmentDefinitionNode,
    OperationDefinitionNode,
    parse,
)
from graphql.utilities import value_from_ast_untyped

from tests.support.wandb_answers import (
    ATTRIBUTES,
    ENTITY,
    Run,
    SpentError,
    bucket,
    chosen,
    now,
    select,
    sortable,
    user,
    value_of,
)


class State:
    """Every project's runs, by (entity, project) and id, and the resolvers of what the clients ask for."""

    def __init__(self) -> None:
        self.projects: dict[tuple[str, str], dict[str, Run]] = {}
        self.spent: set[tuple[str, str, str]] = set()  # ids of deleted runs, which the server gives to nobody again
        self.missing = 0  # runs that are counted and never listed
        self.views: dict[tuple[str, str, str], dict[str, Any]] = {}  # by entity, project and name
        self.read_only: list[str] = []  # projects, as entity/project, that this key may not write to
        self.files: dict[str, int] = {}  # by run and name the size of what was uploaded
        self.sweeps: dict[str, dict[str, str]] = {}  # by id
        self.numbers = itertools.count()
        self.origin = ""  # of the server, as the last request addressed it
        self.unknown: list[str] = []
        self.shuffle: random.Random | None = None  # pages of runs come in another order each time

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The answer to one query: its fields, or its errors."""
        definitions = parse(query).definitions
        operation = next(d for d in definitions if isinstance(d, OperationDefinitionNode))
        fragments = {d.name.value: d.selection_set for d in definitions if isinstance(d, FragmentDefinitionNode)}
        # Defaults count where the client gives nothing.
        given = {
            d.variable.name.value: value_from_ast_untyped(d.default_value)
            for d in operation.variable_definitions or ()
            if d.default_value is not None
        } | {key: value for key, value in variables.items() if value is not None}
        root: dict[str, Any] = {
            "viewer": {**user(), "teams": {"edges": []}},
            "serverInfo": {
                "cliVersionInfo": {"max_cli_version": "9.9.9", "min_cli_version": "0.1.0"},
                "latestLocalVersionInfo": None,
                "features": [],
            },
            "entity": None,  # whose organization the client asks for where telemetry is on
            "model": self._project,
            "project": self._project,
            "upsertBucket": self._upsert,
            "upsertSweep": self._upsert_sweep,
            "deleteRun": self._delete,
            "models": self._models,
            "upsertView": self._upsert_view,
            "view": self._view,
            "deleteView": self._delete_view,
            "createRunFiles": self._create_files,
        }
        missing: list[str] = []
        try:
            data = select(root, operation.selection_set, fragments, given, missing)
        except LookupError as error:
            return {"data": None, "errors": [{"message": str(error.args[0])}]}
        self.unknown += missing
        if any(name in data and name not in root for name in missing):
            return {"data": None, "errors": [{"message": f"unknown field {missing[0]}"}]}
        return {"data": data}

    def _project(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        name, entity = arguments.get("name") or "uncategorized", arguments.get("entityName") or ENTITY
        runs = self.projects.get((entity, name))
        if runs is None:
            return None

        def one(arguments: dict[str, Any]) -> dict[str, Any] | None:
            run = runs.get(arguments["name"])
            return None if run is None else bucket(run)

        def listed(arguments: dict[str, Any]) -> dict[str, Any]:
            found = chosen(runs, arguments.get("filters"))
            if self.shuffle is not None:
                self.shuffle.shuffle(found)
            for key in reversed(_order(arguments, self.shuffle is not None)):
                found.sort(key=lambda run: sortable(value_of(run, key.strip("+- "))), reverse=key.startswith("-"))
            start, count = int(arguments.get("after") or 0), arguments.get("first") or 50
            page = found[start : start + count]
            return {
                "edges": [{"node": bucket(run), "cursor": str(start + i)} for i, run in enumerate(page, 1)],
                "pageInfo": {"endCursor": str(start + len(page)), "hasNextPage": start + count < len(found)},
                "totalCount": len(found),
            }

        return {
            "id": f"{entity}/{name}", "internalId": "1", "name": name, "readOnly": False,
            "entity": {"id": entity, "name": entity}, "entityName": entity, "bucket": one, "run": one, "runs": listed,
            "allViews": lambda arguments: self._views(entity, name, arguments),
            "runCount": lambda arguments: len(chosen(runs, arguments.get("filters"))) + self.missing,
        }  # fmt: skip

    def _models(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The projects of an entity; none of one that is unknown."""
        names = sorted(name for entity, name in self.projects if entity == arguments.get("entityName"))
        nodes = [
            {"__typename": "Project", "id": name, "name": name, "entityName": arguments.get("entityName"),
             "createdAt": "2026-01-01T00:00:00Z", "isBenchmark": False, "user": None}
            for name in names
        ]  # fmt: skip
        info = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
        return {"edges": [{"node": node, "cursor": "c"} for node in nodes], "pageInfo": info}

    def _upsert_view(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """A view by its id, else by its name; `spec` is kept as it is sent."""
        given = arguments["input"]
        entity, project = place = given["entityName"], given["projectName"]
        if place not in self.projects:
            raise LookupError(f"project not found: {entity}/{project}")
        self._require_writable(place)
        of_project = {key: view for key, view in self.views.items() if key[:2] == place}
        key = next((key for key, view in of_project.items() if view["id"] == given.get("id")), (*place, given["name"]))
        if given.get("id") and key not in self.views:
            raise LookupError(f"view not found: {given['id']}")
        inserted = key not in self.views
        number = base64.b64encode(f"View:{next(self.numbers)}".encode()).decode()
        view = self.views.setdefault(key, {"id": number, "name": key[2], "createdAt": now(), "user": user()})
        kept = {name: given.get(name) for name in ("type", "description", "displayName", "spec")}
        view |= {"project": {"id": "1", "name": project, "entityName": entity}, "updatedAt": now(), **kept}
        view["saved"] = view.pop("saved", 0) + 1
        return {"view": view, "inserted": inserted}

    def _views(self, entity: str, project: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The views of a project, of a name or of a type if one is given."""
        views = [view for (e, p, _), view in self.views.items() if (e, p) == (entity, project)]
        name, kind = arguments.get("viewName"), arguments.get("viewType")
        views = [view for view in views if name in (None, view["name"]) and kind in (None, view["type"])]
        edges = [{"node": view, "cursor": str(at)} for at, view in enumerate(views)]
        return {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}

    def _view(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        return next((view for view in self.views.values() if view["id"] == arguments["id"]), None)

    def _delete_view(self, arguments: dict[str, Any]) -> dict[str, Any]:
        number = arguments["input"]["id"]
        self.views = {key: view for key, view in self.views.items() if view["id"] != number}
        return {"success": True, "pendingDrafts": None, "__typename": "DeleteViewPayload"}

    def _require_writable(self, place: tuple[str, str]) -> None:
        if "/".join(place) in self.read_only:
            raise LookupError(f"permission denied: {'/'.join(place)}")

    def _by_id(self, storage_id: str) -> Run:
        found = (run for runs in self.projects.values() for run in runs.values() if run.storage_id == storage_id)
        run = next(found, None)
        if run is None:
            raise LookupError(f"run not found: {storage_id}")
        return run

    def _upsert_sweep(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """A new W&B sweep, to which the runs that match its filters belong from now on."""
        given = arguments["input"]
        place = given.get("entityName") or ENTITY, given["projectName"]
        self._require_writable(place)
        sweep_id = f"sweep{len(self.sweeps):03}"
        self.sweeps[sweep_id] = {"project": "/".join(place), "config": given["config"]}
        runs = self.projects.setdefault(place, {})
        for run in chosen(runs, given["priorRunsFilters"]) if given.get("priorRunsFilters") else ():
            run.attributes["sweep"] = sweep_id
        project = {"id": "1", "name": place[1], "entity": {"id": "1", "name": place[0]}}
        return {"sweep": {"name": sweep_id, "project": project}, "configValidationWarnings": []}

    def _upsert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        given = arguments["input"]
        inserted = False
        if given.get("name"):  # from a client that logs
            place = given.get("entityName") or ENTITY, given.get("modelName") or "uncategorized"
            self._require_writable(place)
            runs = self.projects.setdefault(place, {})
            if (*place, given["name"]) in self.spent:
                raise SpentError(f"run {'/'.join(place)}/{given['name']} was previously created and deleted")
            inserted = given["name"] not in runs
            run = runs.setdefault(given["name"], Run(given["name"], place[1], place[0]))
            run.preempting = run.preempting and not run.complete
            run.resume()
        else:  # from wandb.Api
            run = self._by_id(given["id"])
        run.upserts += 1
        if given.get("config"):
            run.config = json.loads(given["config"])
        if given.get("summaryMetrics"):
            run.summary = given["summaryMetrics"]
        run.attributes |= {key: given[key] for key in ATTRIBUTES if given.get(key) is not None}
        return {"bucket": bucket(run), "inserted": inserted}

    def _delete(self, arguments: dict[str, Any]) -> dict[str, Any]:
        run = self._by_id(arguments["input"]["id"])
        del self.projects[run.entity, run.project][run.name]
        self.spent.add((run.entity, run.project, run.name))
        return {"clientMutationId": None}

    def _create_files(self, arguments: dict[str, Any]) -> dict[str, Any]:
        given = arguments["input"]
        folder = f"{self.origin}/storage/{given.get('entityName')}/{given.get('projectName')}/{given.get('runName')}"
        files = [{"name": name, "uploadUrl": f"{folder}/{name}"} for name in given.get("files") or []]
        return {"runID": "r", "uploadHeaders": [], "files": files}


def _order(arguments: Mapping[str, Any], shuffled: bool) -> list[str]:
    """The keys that runs are sorted by, none where they come shuffled."""
    return [] if shuffled else list((arguments.get("order") or "+created_at").split(","))
