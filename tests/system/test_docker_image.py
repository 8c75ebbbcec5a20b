"""What an image is made of, without an engine: its health check, and what is cut off to make it small."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.support.docker import DOCKER, unwanted


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCKER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


healthy, slim = module("healthy"), module("slim")


# The health check.


@pytest.fixture
def ray_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    """Answers as the head of a cluster does; `status` is what it answers with."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(self.server.status if self.path == "/api/gcs_healthz" else 404)  # type: ignore[attr-defined]
            self.end_headers()
            self.wfile.write(b"no GCS")

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        server.status = 200  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def processes(folder: Path, *commands: str) -> Path:
    """A folder as /proc, with these commands."""
    for number, command in enumerate(commands, start=1):
        (folder / str(number)).mkdir()
        (folder / str(number) / "cmdline").write_text(command.replace(" ", "\0") + "\0")
    (folder / "self").mkdir()
    return folder


def test_a_container_of_one_command_is_well_though_it_has_a_ray_of_its_own(tmp_path: Path) -> None:
    commands = ("/opt/venv/bin/python3 /opt/venv/bin/polysweep launch spec.yaml", "/x/gcs_server --port=1", "/x/raylet")
    assert healthy.ray_start(processes(tmp_path, *commands)) is None


@pytest.mark.parametrize(
    ("command", "node"),
    [
        ("ray start --head --block", ("head", "127.0.0.1", 8265)),
        ("python /opt/venv/bin/ray start --block --head --dashboard-port=9", ("head", "127.0.0.1", 9)),
        ("python -u /opt/venv/bin/ray start --head --dashboard-host 10.0.0.1", ("head", "10.0.0.1", 8265)),
        ("python /opt/venv/bin/ray start --address=head:6379 --block", ("worker", "127.0.0.1", 52365)),
        ("ray start --dashboard-agent-listen-port 7 --address head:6379", ("worker", "127.0.0.1", 7)),
    ],
)
def test_a_node_is_asked_where_its_ray_listens(tmp_path: Path, command: str, node: tuple[str, str, int]) -> None:
    arguments = healthy.ray_start(processes(tmp_path, "tini -- bash", command))
    assert arguments is not None and healthy.node(arguments) == node


def test_a_node_that_is_not_well_is_said_to_be_so(ray_node: HTTPServer) -> None:
    healthy.check("head", "127.0.0.1", ray_node.server_port)
    ray_node.status = 503  # type: ignore[attr-defined]
    with pytest.raises(SystemExit, match="head: 503 no GCS"):
        healthy.check("head", "127.0.0.1", ray_node.server_port)
    with pytest.raises(SystemExit, match="worker: 404"):
        healthy.check("worker", "127.0.0.1", ray_node.server_port)


def test_a_node_that_does_not_answer_is_not_well() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        with pytest.raises(SystemExit, match=r"worker: .*Connection refused"):
            healthy.check("worker", *unused.getsockname())


def test_the_caller_may_say_which_node_it_is() -> None:
    assert healthy.node(["--head", "--dashboard-port=9"], "worker") == ("worker", "127.0.0.1", 52365)
    assert healthy.node(["--dashboard-port=9"], "head") == ("head", "127.0.0.1", 9)


# What makes it small.


def test_a_library_without_its_symbols_is_smaller_and_works(tmp_path: Path) -> None:
    source = Path(np.random._pcg64.__file__)  # type: ignore[attr-defined]
    library = tmp_path / source.name
    shutil.copy(source, library)
    with library.open("ab") as file:
        file.write(bytes(1000))  # as symbols do, it lies behind the last segment
    slim.cut_symbols(library)
    assert library.stat().st_size < source.stat().st_size
    ctypes.CDLL(str(library))
    content = library.read_bytes()
    slim.cut_symbols(library)
    assert library.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(90)])
def test_a_file_that_is_no_64_bit_elf_file_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    slim.cut_symbols(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == content


def test_what_is_unused_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = ["torch/lib/libtorch.so", "torch/bin/torch_shm_manager", "torch/testing/x.py", "ray/tune/tune.py"]
    unused = ["torch/test/x", "torch/bin/test_jit", "scipy/stats/tests/data/x.csv", "ray/rllib/x.py", "triton/a/b.a"]
    for name in (*kept, *unused):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    slim.remove_unused(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("usr/bin/x86_64-linux-gnu-gcc-12", "a compiler"),
        ("opt/venv/bin/cmake", "a compiler"),
        ("var/lib/apt/lists/deb.debian.org_dists_bookworm_InRelease", "a cache"),
        ("root/.cache/pip/http/a", "a cache"),
        ("tmp/requirements.txt", "a cache"),
        ("etc/pip.conf", "a credential"),
        ("run/secrets/ca", "a credential"),
        ("opt/key.txt", "a private key"),
    ],
)
def test_the_search_of_a_layer_finds_what_it_should_not_have(tmp_path: Path, name: str, what: str) -> None:
    wanted = ["usr/bin/gcov", "opt/venv/bin/python", "var/lib/apt/lists/lock", "opt/venv/lib/site-packages/as/dist.py"]
    for path in (*wanted, name):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("-----BEGIN EC PRIVATE KEY-----" if path == "opt/key.txt" else "")
    assert unwanted(tmp_path) == [f"{what}: {name}"]
