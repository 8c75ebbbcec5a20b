"""A loopback W&B server: as much of the protocol as the real client and the real `wandb.Api` need, with faults."""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.wandb_answers import Run, SpentError, sent_line
from tests.support.wandb_graphql import State

OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")


@dataclass(frozen=True)
class Fault:
    """What happens to requests instead of an answer."""

    mode: str = ""  # "": nothing; "fail": answered with `status`; "hang": never answered
    status: int = 500
    retry_after: float | None = None  # seconds
    every: int = 1  # only every so manieth request
    only: str = ""  # only this kind, as `dump()["requests"]` names it
    applied: bool = False  # the request is carried out, and only its answer is lost
    missing: int = 0  # so many runs are counted and never listed
    read_only: tuple[str, ...] = ()  # projects, as entity/project, that may not be written to
    shuffle: int | None = None  # runs are listed in another order at every request, by this seed
    delay: float = 0.0  # seconds before a request is looked at: it is carried out even when its client is gone by then


class Server:
    """State and handlers; `dump` is what the tests look at, `control` how they break it."""

    def __init__(self) -> None:
        self.state = State()
        self.requests: Counter[str] = Counter()
        self.log: list[tuple[float, str, bool]] = []  # of every request its time, its kind, and whether a fault struck
        self.fault = Fault()
        self.hits = 0  # requests that the fault could have struck
        self.recovered = asyncio.Event()
        self.app = web.Application(client_max_size=2**28, middlewares=[self.faults])
        self.app.router.add_post("/graphql", self.graphql)
        self.app.router.add_post("/files/{entity}/{project}/{run}/file_stream", self.file_stream)
        self.app.router.add_put("/storage/{tail:.*}", self.storage)
        self.app.router.add_get("/dump", self.dump)
        self.app.router.add_post("/control", self.control)
        self.app.router.add_post("/load", self.load)
        self.app.router.add_route("*", "/{tail:.*}", self.other)

    async def dump(self, _request: web.Request) -> web.Response:
        runs = {
            name: asdict(run) | {"state": run.state} for p in self.state.projects.values() for name, run in p.items()
        }
        projects = {"/".join(place): list(runs) for place, runs in self.state.projects.items()}
        found = {"runs": runs, "projects": projects, "requests": self.requests, "unknown": self.state.unknown}
        found["views"] = ["/".join([*place, *map(str, view.values())]) for place, view in self.state.views.items()]
        found |= {"log": self.log, "files": self.state.files, "sweeps": self.state.sweeps}
        return web.json_response(found)

    async def control(self, request: web.Request) -> web.Response:
        """Another fault, or none; what hangs until now is answered with 503."""
        self.fault = Fault(**await request.json())
        self.hits = 0
        self.state.missing = self.fault.missing
        self.state.read_only = list(self.fault.read_only)
        self.state.shuffle = None if self.fault.shuffle is None else random.Random(self.fault.shuffle)
        self.recovered.set()
        self.recovered = asyncio.Event()
        return web.Response()

    async def load(self, request: web.Request) -> web.Response:
        """Runs as if clients had logged them: `{"entity", "project", "runs": [fields of Run]}`."""
        given = await request.json()
        runs = self.state.projects.setdefault((given["entity"], given["project"]), {})
        for one in given["runs"]:
            for line in one.get("history", ()):
                sent_line(line)
            runs[one["name"]] = Run(project=given["project"], entity=given["entity"], **one)
        return web.Response()

    @web.middleware
    async def faults(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path in ("/dump", "/control", "/load"):
            return await handler(request)
        await request.read()  # whatever becomes of the client
        kind = await _kind(request)
        self.requests[kind] += 1
        fault, recovered = self.fault, self.recovered
        meant = fault.only in ("", kind)
        if meant and fault.delay:
            await asyncio.sleep(fault.delay)
        struck = meant and fault.mode != ""
        if struck:
            self.hits += 1
            struck = self.hits % fault.every == 0
        self.log.append((time.monotonic(), kind, struck))
        if not struck:
            return await handler(request)
        if fault.applied:
            await handler(request)
        if fault.mode == "hang":
            await recovered.wait()
            return web.Response(status=503)
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        return web.json_response({"error": "a fault of the test"}, status=fault.status, headers=headers)

    async def other(self, request: web.Request) -> web.Response:
        self.state.unknown.append(f"{request.method} {request.path}")
        return web.json_response({}, status=404)

    async def storage(self, request: web.Request) -> web.Response:
        self.state.files[request.match_info["tail"]] = len(await request.read())
        return web.Response()

    async def graphql(self, request: web.Request) -> web.Response:
        body = json.loads(await _plain(request))
        self.state.origin = str(request.url.origin())
        try:
            return web.json_response(self.state.answer(body["query"], body.get("variables") or {}))
        except SpentError as error:
            return web.json_response({"errors": [{"message": str(error)}]}, status=409)

    async def file_stream(self, request: web.Request) -> web.Response:
        path = request.match_info
        run = self.state.projects.get((path["entity"], path["project"]), {}).get(path["run"])
        if run is None:
            return web.json_response({"error": "run not found"}, status=404)
        body = json.loads(await _plain(request))
        run.resume()
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
        if body.get("preempting"):
            run.preempting = True
        if body.get("complete") is not None:
            run.complete, run.exit_code = body["complete"], body.get("exitcode")
        return web.json_response({"limits": {}})


async def _plain(request: web.Request) -> bytes:
    """aiohttp unpacks a gzip body itself, unless the client forgot to say so."""
    body = await request.read()
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


async def _kind(request: web.Request) -> str:
    """The name of a query, else the last part of the path."""
    if request.path != "/graphql":
        return "storage" if request.path.startswith("/storage/") else request.path.rpartition("/")[2]
    query: str = json.loads(await _plain(request))["query"]
    named = OPERATION.search(query)
    return named[1] if named else "query"


class Hub:
    """Servers that know nothing of each other, each on a port of its own: a process for all of a session's tests."""

    def __init__(self) -> None:
        self.servers: dict[int, tuple[Server, web.AppRunner]] = {}
        self.app = web.Application()
        self.app.router.add_post("/open", self.open)
        self.app.router.add_post("/close", self.close)

    async def open(self, _request: web.Request) -> web.Response:
        """Another server; its port."""
        server = Server()
        runner, port = await _listen(server.app)
        self.servers[port] = server, runner
        return web.json_response(port)

    async def close(self, request: web.Request) -> web.Response:
        """End the server of a port, whoever still asks it."""
        server, runner = self.servers.pop(int(await request.text()))
        server.recovered.set()
        await runner.cleanup()
        return web.Response()


async def _listen(app: web.Application) -> tuple[web.AppRunner, int]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, int(runner.addresses[0][1])


async def _serve(port_file: Path, is_hub: bool) -> Any:
    _, port = await _listen(Hub().app if is_hub else Server().app)
    temporary = port_file.with_suffix(".part")
    temporary.write_text(str(port))
    temporary.rename(port_file)
    await asyncio.Event().wait()


def serve() -> None:
    """`python -m tests.support.wandb_server --port-file FILE [--hub]`: on a free loopback port, written to FILE."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--hub", action="store_true", help="serve a Hub")
    given = parser.parse_args()
    asyncio.run(_serve(given.port_file, given.hub))


if __name__ == "__main__":
    serve()
