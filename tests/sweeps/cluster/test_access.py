"""Whether a cluster answers, demands a token and accepts ours: asked of loopback servers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import pytest

from polysweep.sweeps.cluster import access
from polysweep.sweeps.cluster.access import ALIVE, check_dashboard, check_grpc, check_launch
from polysweep.trainer.errors import UserError

RAY = json.dumps({"ray_version": "2.55.0"}).encode()
Answer = Callable[[str | None], tuple[int, bytes]]
"""From the header Authorization to the status and the body."""


def demanding(authorization: str | None) -> tuple[int, bytes]:
    """As a dashboard with the token `right`."""
    if authorization is None:
        return 401, b""
    return (200, RAY) if authorization == "Bearer right" else (403, b"")


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a token of the user's reaches these tests, nor does what they set outlive them."""
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("RAY_AUTH_MODE", "unset")


@pytest.fixture
def dashboard() -> Iterator[Callable[[Answer], str]]:
    """The address of a server that answers every GET as it is told."""
    servers: list[ThreadingHTTPServer] = []

    def serve(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, body = answer(self.headers["Authorization"])
                self.send_response(code if self.path == "/api/version" else 404)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def refusal(address: str, *, insecure: bool = False) -> str:
    with pytest.raises(UserError) as caught:
        check_dashboard(address, insecure)
    return str(caught.value)


def test_a_dashboard_that_demands_a_token_is_used_with_ours_only(
    dashboard: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = dashboard(demanding)
    where = "set RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"
    assert refusal(address) == f"--address {address}: the cluster demands a token and none is given: {where}"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
    assert refusal(address) == f"--address {address}: the cluster does not accept this token: {where}"
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    (tmp_path / "token").write_text("right\n")
    monkeypatch.setenv("RAY_AUTH_MODE", "unset")
    check_dashboard(f"{address}/", False)
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_a_dashboard_without_a_token_is_used_only_if_the_user_accepts_that(
    dashboard: Callable[[Answer], str],
) -> None:
    address = dashboard(lambda _: (200, RAY))
    assert refusal(address) == (
        f"--address {address}: the cluster does not demand a token, so anybody who reaches it can run code on it; "
        "start it with RAY_AUTH_MODE=token, or pass --insecure"
    )
    check_dashboard(address, True)
    assert os.environ["RAY_AUTH_MODE"] == "unset"


def test_what_is_no_dashboard_of_ray_is_named(dashboard: Callable[[Answer], str]) -> None:
    page, missing = dashboard(lambda _: (200, b"<html>")), dashboard(lambda _: (404, b""))
    assert refusal(page) == f"--address {page}: that is not the dashboard of a Ray cluster"
    assert refusal(page, insecure=True) == f"--address {page}: that is not the dashboard of a Ray cluster"
    assert refusal(missing) == f"--address {missing}: answers 404; expected the dashboard of a Ray cluster"
    assert refusal("ray://head:10001") == (
        "--address 'ray://head:10001': expected the dashboard of a cluster, http://HOST:8265"
    )
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        closed = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    assert refusal(closed) == f"--address {closed}: no server is listening there ([Errno 111] Connection refused)"
    assert refusal("http://api.invalid:1/").startswith("--address http://api.invalid:1: no server is listening there (")


def test_the_port_of_drivers_is_asked_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Demanding(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            sent = dict(details.invocation_metadata).get("authorization")

            def call(_: bytes, context: grpc.ServicerContext) -> bytes:
                if sent != "Bearer right":
                    context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
                return b""

            return grpc.unary_unary_rpc_method_handler(call)

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((Demanding(),))
        target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        for token, words in (("", "demands a token and none is given"), ("wrong", "does not accept this token")):
            monkeypatch.setenv("RAY_AUTH_TOKEN", token)
            with pytest.raises(UserError, match=f"^--address {target}: the cluster {words}: set RAY_AUTH_TOKEN"):
                check_grpc(target, ALIVE, False)
        monkeypatch.setenv("RAY_AUTH_TOKEN", "right")
        check_grpc(target, ALIVE, False)
        server.stop(None).wait()
    with pytest.raises(UserError, match=rf"^--address {target}: no server is listening there \(unavailable\)$"):
        check_grpc(target, ALIVE, False)


@pytest.fixture
def silent() -> Iterator[str]:
    """HOST:PORT of a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_never_answers_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "SECONDS", 0.5)
    assert refusal(f"http://{silent}").endswith("no server is listening there (timed out)")
    with pytest.raises(UserError, match=r"no server is listening there \(deadline_exceeded\)$"):
        check_launch(f"ray://{silent}", False)


def test_what_knows_no_limit_of_its_own_is_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that is silent, or a server that answers byte by byte."""
    monkeypatch.setattr(access, "PATIENCE", 0.2)
    asked = threading.Event()
    monkeypatch.setattr(access, "_version", lambda *_: asked.wait(10))
    monkeypatch.setattr(access, "_call", lambda *_: asked.wait(10))
    assert refusal("http://slow:8265").endswith("no server is listening there (no answer within 0.2 s)")
    with pytest.raises(UserError, match=r"^--address ray://slow: no server is listening there \(no answer within"):
        check_launch("ray://slow", False)
    asked.set()


@pytest.mark.parametrize("address", ["http://", "http://h:port", "http://h:99999", "http://[::1", "head:8265", ""])
def test_what_is_no_address_of_a_dashboard_is_refused_unasked(address: str) -> None:
    assert refusal(address).endswith("expected the dashboard of a cluster, http://HOST:8265")


@pytest.mark.parametrize("address", ["head:6379", "10.0.0.1:6379", "http://head:8265", "ray://h:x", "ray://[::1", ""])
def test_what_is_no_address_of_a_launch_is_refused_unasked(address: str) -> None:
    with pytest.raises(UserError, match=r"expected auto, on a machine of the cluster, or ray://HOST:10001$"):
        check_launch(address, False)


def test_another_port_of_ray_or_of_any_server_that_speaks_grpc_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_call", lambda *_: grpc.StatusCode.UNIMPLEMENTED)
    with pytest.raises(
        UserError, match=r"^--address h:6379: that is not the port for clients of Ray, 10001 by default$"
    ):
        check_launch("ray://h:6379", True)
    answers = iter([grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED])
    monkeypatch.setattr(access, "_call", lambda *_: next(answers))
    with pytest.raises(UserError, match=r"that is not the port for Ray's drivers, 6379 by default$"):
        check_grpc("h:10001", ALIVE, False)


def test_an_address_is_asked_before_ray_is_imported(
    silent: str, run_here: Callable[..., subprocess.CompletedProcess[str]], spec_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    """So that the error comes within seconds."""
    monkeypatch.setattr(access, "SECONDS", 0.2)
    monkeypatch.setitem(sys.modules, "ray", None)
    for command, address in (("submit", f"http://{silent}"), ("launch", f"ray://{silent}")):
        answer = run_here(command, spec_file(), "--address", address, "--store", tmp_path / "store")
        assert answer.returncode == 2 and len(answer.stderr.splitlines()) == 1
        assert "no server is listening there" in answer.stderr
