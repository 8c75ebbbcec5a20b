"""A loopback W&B server: as much of the protocol as the real client needs to log, resume and finish runs."""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from graphql import FieldNode, OperationDefinitionNode, parse

ENTITY = "lab"


@dataclass
class Run:
    """What the server knows of one run."""

    name: str
    project: str
    config: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    summary: str = "{}"
    events: int = 0
    logs: int = 0
    exit_code: int | None = None
    complete: bool = False
    upserts: int = 0


class Server:
    """State and handlers; `dump` is what the tests look at."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.unknown: list[str] = []
        self.app = web.Application(client_max_size=2**28)
        self.app.router.add_post("/graphql", self.graphql)
        self.app.router.add_post("/files/{entity}/{project}/{run}/file_stream", self.file_stream)
        self.app.router.add_put("/storage/{tail:.*}", self.storage)
        self.app.router.add_get("/dump", self.dump)
        self.app.router.add_route("*", "/{tail:.*}", self.other)

    async def dump(self, _request: web.Request) -> web.Response:
        runs = {name: vars(run) for name, run in self.runs.items()}
        return web.json_response({"runs": runs, "unknown": self.unknown})

    async def other(self, request: web.Request) -> web.Response:
        self.unknown.append(f"{request.method} {request.path}")
        return web.json_response({}, status=404)

    async def storage(self, request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    async def graphql(self, request: web.Request) -> web.Response:
        body = json.loads(_plain(await request.read(), request))
        variables = body.get("variables") or {}
        operation = next(d for d in parse(body["query"]).definitions if isinstance(d, OperationDefinitionNode))
        fields = [s for s in operation.selection_set.selections if isinstance(s, FieldNode)]
        data: dict[str, Any] = {}
        for selected in fields:
            name = selected.name.value
            key = selected.alias.value if selected.alias else name
            handler = getattr(self, f"_{name}", None)
            if handler is None:
                self.unknown.append(name)
                return web.json_response({"errors": [{"message": f"unknown field {name}"}]})
            data[key] = handler(variables)
        return web.json_response({"data": data})

    def _viewer(self, _variables: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": "1", "entity": ENTITY, "username": ENTITY, "flags": "{}", "admin": False, "email": "",
            "teams": {"edges": []},
        }  # fmt: skip

    def _serverInfo(self, _variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {
            "cliVersionInfo": {"max_cli_version": "9.9.9", "min_cli_version": "0.1.0"},
            "latestLocalVersionInfo": None,
            "features": [],
        }

    def _upsertBucket(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = variables.get("name") or variables.get("id")
        inserted = name not in self.runs
        run = self.runs.setdefault(name, Run(name, variables.get("project") or "uncategorized"))
        run.upserts += 1
        if variables.get("config"):
            run.config = json.loads(variables["config"])
        for key in ("displayName", "groupName", "jobType", "tags", "notes"):
            if variables.get(key) is not None:
                run.attributes[key] = variables[key]
        return {
            "bucket": {
                **self._bucket(run),
                "project": {"id": "p", "name": run.project, "entity": {"id": "e", "name": ENTITY}},
            },
            "inserted": inserted,
        }

    def _bucket(self, run: Run) -> dict[str, Any]:
        tail = [run.history[-1]] if run.history else []
        client = run.config.get("_wandb", {}).get("value", {})
        return {
            "id": run.name, "name": run.name, "displayName": run.attributes.get("displayName"),
            "description": None, "sweepName": None, "historyLineCount": len(run.history),
            "eventsLineCount": run.events, "logLineCount": run.logs, "historyTail": json.dumps(tail),
            "eventsTail": "[]", "summaryMetrics": run.summary, "config": json.dumps(run.config),
            "tags": run.attributes.get("tags", []), "wandbConfig": json.dumps({"t": client.get("t")}),
        }  # fmt: skip

    def _model(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(variables.get("name") or variables.get("run") or "")
        bucket = None if run is None else self._bucket(run)
        return {
            "id": "p",
            "name": variables.get("project"),
            "entity": {"id": "e", "name": ENTITY},
            "bucket": bucket,
        }

    _project = _model

    def _createRunFiles(self, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        names = variables.get("files") or []
        return {
            "runID": "r",
            "uploadHeaders": [],
            "files": [{"name": n, "uploadUrl": f"/storage/{n}"} for n in names],
        }

    async def file_stream(self, request: web.Request) -> web.Response:
        run = self.runs[request.match_info["run"]]
        body = json.loads(_plain(await request.read(), request))
        for name, part in (body.get("files") or {}).items():
            lines, offset = part["content"], part["offset"]
            if name == "wandb-history.jsonl":
                run.history[offset:] = lines
            elif name == "wandb-summary.json":
                run.summary = lines[-1]
            elif name == "wandb-events.jsonl":
                run.events = offset + len(lines)
            elif name == "output.log":
                run.logs = offset + len(lines)
        if body.get("complete") is not None:
            run.complete, run.exit_code = body["complete"], body.get("exitcode")
        return web.json_response({"limits": {}})


def _plain(body: bytes, request: web.Request) -> bytes:
    """aiohttp unpacks a gzip body itself, unless the client forgot to say so."""
    del request
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


def serve() -> None:
    """`python wandb_server.py --port-file FILE`: serve on a free loopback port, whose number the file then holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port-file", type=Path, required=True)
    target: Path = parser.parse_args().port_file

    async def announce(app: web.Application) -> None:
        del app

    server = Server()
    server.app.on_startup.append(announce)
    import asyncio

    async def run() -> None:
        runner = web.AppRunner(server.app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        temporary = target.with_suffix(".part")
        temporary.write_text(str(port))
        temporary.rename(target)
        await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    serve()
