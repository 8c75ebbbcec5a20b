"""A reverse proxy on loopback that stands before an S3 or W&B server and breaks what passes, as it is told."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

CONTROL = "/fault-proxy"
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-encoding", "expect", "host"}


@dataclass(frozen=True)
class Fault:
    """What happens to requests on their way. A request that is struck never reaches the server unless `applied`."""

    status: int = 0  # answered with it; 0: not
    hang: bool = False  # not answered before the fault is over, and then the connection ends
    reset: bool = False  # the connection is reset
    delay: float = 0.0  # seconds before a request goes on; it is no strike by itself
    applied: bool = False  # the server carries the request out, and only its answer is lost
    every: int = 1  # only every so manieth request is struck

    @property
    def strikes(self) -> bool:
        """Whether it takes answers away."""
        return bool(self.status or self.hang or self.reset)


class Proxy:
    """Handlers; the state is the fault and how many requests it has hit."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.fault = Fault()
        self.seen = 0  # requests since the fault was set
        self.hit = 0  # those that it has struck or delayed
        self.over = asyncio.Event()
        self.app = web.Application(client_max_size=2**28)
        self.app.router.add_post(CONTROL, self.control)
        self.app.router.add_route("*", "/{tail:.*}", self.forward)
        self.client = aiohttp.ClientSession(auto_decompress=False)

    async def control(self, request: web.Request) -> web.Response:
        """Set another fault, unless the body is empty; answers with how many requests the last one has hit."""
        body = await request.read()
        hit = self.hit
        if body:
            self.fault, self.seen, self.hit = Fault(**json.loads(body)), 0, 0
            self.over.set()
            self.over = asyncio.Event()
        return web.json_response({"hit": hit})

    async def forward(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fault, over = self.fault, self.over
        self.seen += 1
        met = self.seen % fault.every == 0
        if met and (fault.strikes or fault.delay):
            self.hit += 1
        if met and fault.delay:
            await asyncio.sleep(fault.delay)
        if not (met and fault.strikes):
            return await self._answer(request, body)
        if fault.applied:
            await self._answer(request, body)
        if fault.hang:
            await over.wait()
        if fault.status:
            return web.Response(status=fault.status, text="a fault of the test")
        if request.transport is not None:
            end = request.transport.get_extra_info("socket")
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the client gets a RST
            request.transport.abort()
        raise asyncio.CancelledError

    async def _answer(self, request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {key: value for key, value in request.headers.items() if key.lower() not in HOP_BY_HOP}
        if "Content-Encoding" in request.headers:  # aiohttp has unpacked gzip; S3's aws-chunked it leaves alone
            if request.headers["Content-Encoding"] in ("gzip", "deflate"):
                headers.pop("Content-Length", None)
            else:
                headers["Content-Encoding"] = request.headers["Content-Encoding"]
        url = URL(self.upstream + request.raw_path, encoded=True)
        try:
            async with self.client.request(
                request.method, url, data=body or None, headers=headers, allow_redirects=False
            ) as found:
                content = await found.read()
                kept = {key: value for key, value in found.headers.items() if key.lower() not in HOP_BY_HOP}
        except aiohttp.ClientError as error:
            return web.Response(status=502, text=str(error))
        if request.method != "HEAD":
            kept.pop("Content-Length", None)
        return web.Response(status=found.status, body=content or None, headers=kept)


class FaultProxy:
    """A running proxy, as a test drives it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def set(self, fault: Fault) -> int:
        """Set a fault; returns how many requests the last one has hit."""
        return self._control(json.dumps(asdict(fault)).encode())

    def hits(self) -> int:
        """How many requests the present fault has hit."""
        return self._control(b"")

    def _control(self, body: bytes) -> int:
        with urllib.request.urlopen(self.url + CONTROL, body, timeout=30) as answer:
            return int(json.load(answer)["hit"])


async def _serve(upstream: str, port_file: Path) -> Any:
    runner = web.AppRunner(Proxy(upstream).app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    temporary = port_file.with_suffix(".part")
    temporary.write_text(str(runner.addresses[0][1]))
    temporary.rename(port_file)
    await asyncio.Event().wait()


def serve() -> None:
    """`python -m tests.support.fault_proxy --upstream URL --port-file FILE`: serve on a free port, written to FILE."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port-file", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(_serve(options.upstream, options.port_file))


if __name__ == "__main__":
    serve()
