"""The image of the target cpu, built without a hub, and a sweep in it. Takes minutes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import ssl
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.docker import (
    DOCKER,
    USER,
    build,
    build_base,
    call,
    fetch_wheels,
    image_name,
    image_storage,
    locked,
    need_tools,
    run_in,
)  # fmt: skip
from tests.support.results import records


class PrivateIndex(SimpleHTTPRequestHandler):
    """A folder of wheels over TLS, for those who know the password."""

    password = ""

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        if base64.b64decode(given).decode() == f"builder:{self.password}":
            with contextlib.suppress(ConnectionError):
                super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="wheels"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def private_index(wheels: Path, folder: Path, password: str) -> Iterator[dict[str, Path]]:
    """Serve the wheels; the files that a build needs as its secrets, by id."""
    secret = {"ca": folder / "ca.pem", "pip_conf": folder / "pip.conf"}
    call(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
        "-subj", "/CN=index", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem",
        "-out", secret["ca"],
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secret["ca"], folder / "key.pem")
    handler = partial(type("Handler", (PrivateIndex,), {"password": password}), directory=str(wheels))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"https://builder:{password}@127.0.0.1:{server.server_port}/"
        secret["pip_conf"].write_text(f"[global]\nno-index = true\nfind-links = {address}\n")
        try:
            yield secret
        finally:
            server.shutdown()


@pytest.mark.long
def test_an_image_is_built_without_a_hub_keeps_no_secret_and_runs_a_sweep(tmp_path: Path) -> None:
    need_tools()
    commit = call("git", "rev-parse", "HEAD").stdout.strip()
    dirty = bool(call("git", "status", "--porcelain").stdout)
    password = secrets.token_hex(16)
    fetch_wheels(tmp_path / "wheels", "cpu")
    image = image_name("cpu")
    with image_storage(tmp_path) as storage:
        base = build_base(storage, tmp_path)
        with private_index(tmp_path / "wheels", tmp_path, password) as secret:
            built = build(storage, base, "cpu", secret)
        shutil.rmtree(tmp_path / "wheels")

        # Neither layers nor configuration nor what the build printed have the password, the address or the CA.
        certificate = secret["ca"].read_text().splitlines()[1]
        address = secret["pip_conf"].read_text().split("@")[-1].strip()
        assert certificate in call("grep", "-rF", certificate, secret["ca"]).stdout  # the search itself works
        found = call("grep", "-rlaF", "-e", password, "-e", certificate, "-e", address, tmp_path / "root", check=False)
        assert (found.returncode, found.stdout) == (1, "")
        assert password not in built.stdout + built.stderr

        assert run_in(storage, image, "id", "-u").strip() == str(USER)
        assert run_in(storage, image, "ray", "--version").startswith("ray, version ")
        refused = "import errno, sys\ntry: open('/work/x', 'w')\nexcept OSError as e: print(errno.errorcode[e.errno])"
        assert run_in(storage, image, "python", "-c", refused).strip() == "EROFS"

        spec = {"task": "digits", "model": "mlp", "optimizer": "usam", "scheduler": "polyak", "epochs": 1}
        parameters = {name: {"value": value} for name, value in spec.items()} | {"rho": {"values": [0.1, 0.2]}}
        (tmp_path / "spec.yaml").write_text(json.dumps({"name": "in-image", "parameters": parameters, "seeds": 1}))
        (tmp_path / "store").mkdir()
        os.chown(tmp_path / "store", USER, USER)
        mounts = (f"{tmp_path}/store:/store", f"{tmp_path}/spec.yaml:/work/spec.yaml:ro")
        command = ("polysweep", "launch", "spec.yaml", "--store", "/store", "--wandb", "offline")
        assert "in-image: 2 finished" in run_in(storage, image, *command, mounts=mounts)

    kept = records(tmp_path / "store")
    assert [record["outcome"] for record in kept.values()] == ["finished", "finished"]
    lock = hashlib.sha256((DOCKER / "requirements-cpu.txt").read_bytes()).hexdigest()
    for record in kept.values():
        assert record["provenance"]["image"] == {"commit": commit, "dirty": dirty, "lock": lock, "target": "cpu"}
        assert record["provenance"]["commit"].startswith(commit)
        assert record["provenance"]["versions"]["torch"] == str(locked(DOCKER / "requirements-cpu.txt")["torch"][0])
