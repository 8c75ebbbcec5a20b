"""Whether a cluster answers at an address and demands a token, asked before Ray connects to it.

Ray itself waits for minutes, and accepts any token if none is demanded.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import grpc

from polysweep.trainer.errors import UserError

T = TypeVar("T")
SECONDS: Final = 5.0
"""How long one question may take."""
PATIENCE: Final = 15.0
"""How long all may take: a name server, or a server that answers byte by byte, knows no such limit."""
CLIENT_PORT: Final = 10001
ALIVE: Final = "/ray.rpc.NodeInfoGcsService/CheckAlive"
"""What is asked at the port that drivers connect to."""
CLIENT: Final = "/ray.rpc.RayletDriver/ClusterInfo"
"""What is asked at the port that `ray://` clients connect to."""


def check_launch(address: str, insecure: bool) -> str:
    """Raise `UserError` unless a cluster answers at `--address` of a launch, demands a token, and accepts ours.

    Returns where drivers or clients connect to, HOST:PORT.
    """
    if address == "auto":
        target = address_of_this_cluster()
        _in_time(address, lambda: check_grpc(target, ALIVE, insecure))
        return target
    host, port = _host_and_port(address, ("ray",), "auto, on a machine of the cluster, or ray://HOST:10001")
    target = f"{host}:{port or CLIENT_PORT}"
    _in_time(address, lambda: check_grpc(target, CLIENT, insecure))
    return target


def check_dashboard(address: str, insecure: bool) -> None:
    """Raise `UserError` unless the dashboard of a cluster answers there, demands a token, and accepts ours."""
    _host_and_port(address, ("http", "https"), "the dashboard of a cluster, http://HOST:8265")
    _in_time(address, lambda: _check_dashboard(address, insecure))


def _host_and_port(address: str, schemes: tuple[str, ...], expected: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in schemes:
        raise UserError(f"--address {address!r}: expected {expected}")
    return (f"[{host}]" if ":" in host else host), port


def _in_time(address: str, question: Callable[[], T]) -> T:
    """The answer to a question to a server. Raises `UserError` if there is none after `PATIENCE`."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(question())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    for error in errors:
        raise error
    if not answers:
        raise UserError(f"--address {address}: no server is listening there (no answer within {PATIENCE:g} s)")
    return answers[0]


def _check_dashboard(address: str, insecure: bool) -> None:
    code, body = _version(address, "")
    if code == 200:
        try:
            json.loads(body)["ray_version"]
        except (ValueError, KeyError, TypeError):
            raise UserError(f"--address {address}: that is not the dashboard of a Ray cluster") from None
        if not insecure:
            raise UserError(_demands_none(address))
        return
    if code not in (401, 403):
        raise UserError(f"--address {address}: answers {code}; expected the dashboard of a Ray cluster")
    os.environ["RAY_AUTH_MODE"] = "token"  # even if --insecure was passed and is not needed
    token = _token()
    code, _ = _version(address, token)
    if code != 200:
        raise UserError(_refused(address, token))


def _version(address: str, token: str) -> tuple[int, str]:
    """The status and the body of the dashboard's answer to the question for its version."""
    url = f"{address.rstrip('/')}/api/version"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=SECONDS) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise UserError(f"--address {address.rstrip('/')}: no server is listening there ({reason})") from None


def check_grpc(target: str, method: str, insecure: bool) -> None:
    """The same for the port that drivers or clients connect to; `method` is `ALIVE` or `CLIENT`."""
    code = _call(target, method, "")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        raise UserError(_other_port(target, method))
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        raise UserError(f"--address {target}: no server is listening there ({code.name.lower()})")
    if code is not grpc.StatusCode.UNAUTHENTICATED:
        if not insecure:
            raise UserError(_demands_none(target))
        return
    os.environ["RAY_AUTH_MODE"] = "token"  # even if --insecure was passed and is not needed
    token = _token()
    code = _call(target, method, token)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        raise UserError(_refused(target, token))
    if code is grpc.StatusCode.UNIMPLEMENTED:
        raise UserError(_other_port(target, method))


def _call(target: str, method: str, token: str) -> grpc.StatusCode:
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(method)(b"", timeout=SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


def answers(target: str) -> bool:
    """Whether the cluster whose drivers connect to `target` is alive."""
    return _call(target, ALIVE, _token()) not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def _token() -> str:
    """As Ray finds it: RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, ~/.ray/auth_token."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _demands_none(address: str) -> str:
    return (
        f"--address {address}: the cluster does not demand a token, so anybody who reaches it can run code on it; "
        "start it with RAY_AUTH_MODE=token, or pass --insecure"
    )


def _other_port(target: str, method: str) -> str:
    what = f"clients of Ray, {CLIENT_PORT} by default" if method == CLIENT else "Ray's drivers, 6379 by default"
    return f"--address {target}: that is not the port for {what}"


def _refused(address: str, token: str) -> str:
    problem = "does not accept this token" if token else "demands a token and none is given"
    return f"--address {address}: the cluster {problem}: set RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"


def address_of_this_cluster() -> str:
    """Where drivers connect to the cluster of this machine. Raises `UserError` if there is none."""
    from ray._private.services import get_ray_address_from_environment

    try:
        return str(get_ray_address_from_environment("auto", None))
    except (ConnectionError, RuntimeError):
        raise UserError("--address auto: no Ray cluster runs on this machine, and RAY_ADDRESS is not set") from None
