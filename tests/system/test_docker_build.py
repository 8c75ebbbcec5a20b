"""The image of the target cpu, built without a hub: what is in it, and the quickstart in it. Takes minutes.

`IMAGE_TARGET=cuda` in the environment tries the other target, whose wheels are 4 GB; it needs no GPU.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polysweep
from tests.support import mini_cifar
from tests.support.docker import (
    DOCKER,
    USER,
    build,
    build_base,
    call,
    fetch_wheels,
    image_name,
    image_storage,
    layers,
    locked,
    need_tools,
    run_in,
    try_in,
    unwanted,
)
from tests.support.project import ROOT
from tests.support.results import records

TARGET = os.environ.get("IMAGE_TARGET", "cpu")
IMAGE = image_name(TARGET)
LOCK = DOCKER / f"requirements-{TARGET}.txt"
LARGEST = {"cpu": 1.5e9, "cuda": 6e9}  # bytes
NO_GPU = {"cpu": "is a build without CUDA", "cuda": "libcuda.so.1, the library of NVIDIA's driver, is not found"}


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


@dataclass(frozen=True)
class Built:
    """An image, with what its build was not to keep."""

    storage: list[str]
    folder: Path
    password: str
    secret: dict[str, Path]
    output: str

    def run(self, *command: str, mounts: tuple[str, ...] = ()) -> str:
        return run_in(self.storage, IMAGE, *command, mounts=mounts)

    def refused(self, *command: str, mounts: tuple[str, ...] = ()) -> str:
        """The one line with which a command ends that the user has to change."""
        done = try_in(self.storage, IMAGE, *command, mounts=mounts)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stdout + done.stderr
        return done.stderr

    def inspect(self) -> dict[str, Any]:
        (image,) = json.loads(call("podman", *self.storage, "inspect", IMAGE).stdout)
        return dict(image)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The working tree's image, from an index that asks for a password."""
    need_tools()
    folder = tmp_path_factory.mktemp("images")
    password = secrets.token_hex(16)
    fetch_wheels(folder / "wheels", TARGET)
    with image_storage(folder) as storage, private_index(folder / "wheels", folder, password) as secret:
        done = build(storage, build_base(storage, folder), TARGET, secret)
        yield Built(storage, folder, password, secret, done.stdout + done.stderr)


def a_store(folder: Path, owner: int = USER) -> tuple[str, ...]:
    """The mount of a new Store."""
    (folder / "store").mkdir()
    os.chown(folder / "store", owner, owner)
    return (f"{folder}/store:/store",)


@pytest.mark.long
def test_nothing_that_the_build_needed_is_kept(built: Built) -> None:
    certificate = built.secret["ca"].read_text().splitlines()[1]
    address = built.secret["pip_conf"].read_text().split("@")[-1].strip()
    assert certificate in call("grep", "-rF", certificate, built.secret["ca"]).stdout  # the search itself works
    patterns = ["-e", built.password, "-e", certificate, "-e", address]
    search = call("grep", "-rlaF", *patterns, built.folder / "root", check=False)
    assert (search.returncode, search.stdout) == (1, "")
    assert built.password not in built.output
    for layer in layers(built.storage, IMAGE):
        assert unwanted(layer) == []
    assert not re.search("://[^/]*@|token=|password", json.dumps(built.inspect()), re.IGNORECASE)


@pytest.mark.long
def test_the_image_says_what_it_is_and_is_below_its_limit(built: Built) -> None:
    image = built.inspect()
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in image["Labels"].items()}
    assert (labels["title"], labels["version"]) == ("polysweep", polysweep.__version__)
    assert labels["revision"] == call("git", "rev-parse", "HEAD").stdout.strip()
    assert image["Healthcheck"]["Test"] == ["CMD", "/opt/polysweep/healthy"]
    assert image["Size"] < LARGEST[TARGET]
    assert built.run("/opt/polysweep/healthy") == ""
    assert built.run("cat", "/opt/polysweep/requirements.txt") == LOCK.read_text()
    assert built.run("id", "-u").strip() == str(USER)
    assert built.run("ray", "--version").startswith("ray, version ")
    refused = "import errno, sys\ntry: open('/work/x', 'w')\nexcept OSError as e: print(errno.errorcode[e.errno])"
    assert built.run("python", "-c", refused).strip() == "EROFS"


@pytest.mark.long
def test_the_quickstart_runs_in_it(built: Built, tmp_path: Path) -> None:
    """As its user, with a read-only root, no capability and no network."""
    mounts = (*a_store(tmp_path), f"{ROOT}/sweeps/specs:/work:ro")
    launch = "polysweep launch quickstart.yaml --wandb offline"
    assert "quickstart: 72 finished" in built.run(*launch.split(), mounts=mounts)
    assert "nothing to start, all 72 trials have ended" in built.run(*launch.split(), mounts=mounts)
    for command in (
        "polysweep table quickstart", "polysweep status quickstart",
        "polysweep plot quickstart --out /tmp/plots", "polysweep report quickstart --out /tmp/report.html",
    ):  # fmt: skip
        assert built.run(*command.split(), mounts=mounts), command

    results = records(tmp_path / "store")
    assert [record["outcome"] for record in results.values()] == ["finished"] * 72
    commit = call("git", "rev-parse", "HEAD").stdout.strip()
    dirty = bool(call("git", "status", "--porcelain").stdout)
    lock = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    for record in results.values():
        assert record["provenance"]["image"] == {"commit": commit, "dirty": dirty, "lock": lock, "target": TARGET}
        assert record["provenance"]["commit"].startswith(commit)
        assert record["provenance"]["versions"]["torch"] == str(locked(LOCK)["torch"][0])


CIFAR_PART = """
from polysweep.trainer.components.registry import declare
from polysweep.trainer.tasks.cifar import Cifar

class Files:
    {facts}

class Mini(Cifar):
    polysweep = declare(uses={uses}, train_size=80, smallest_class=10, input_shape=(3, 32, 32))(lambda: None).polysweep

task = Mini("mini", "own:Files", classes=10, cutout=16)
"""


@pytest.mark.long
def test_cifar_is_decoded_and_trained_in_it(built: Built, tmp_path: Path) -> None:
    names = ("base_folder", "filename", "url", "tgz_md5", "train_list", "test_list", "meta")
    facts = "\n    ".join(f"{name} = {getattr(mini_cifar.Mini10, name)!r}" for name in names)
    (tmp_path / "own.py").write_text(CIFAR_PART.format(facts=facts, uses=mini_cifar.USES))
    (tmp_path / "data").mkdir()
    mini_cifar.write_archives(tmp_path / "data")
    call("chown", "-R", f"{USER}:{USER}", tmp_path / "data")
    mounts = (*a_store(tmp_path), f"{tmp_path}/own.py:/work/own.py:ro", f"{tmp_path}/data:/data")
    config = "task=own:task model=mlp optimizer=usam scheduler=polyak rho=0.1 batch_size=40 epochs=1"
    assert "finished" in built.run("polysweep", "train", *config.split(), "--wandb", "disabled", mounts=mounts)
    decoded = np.load(tmp_path / "data" / "mini-decoded-1" / "train_images.npy")
    assert np.array_equal(decoded, mini_cifar.cifar10(tmp_path / "data", 0.0).train.images.numpy())


@pytest.mark.long
def test_what_a_container_lacks_is_one_line(built: Built, tmp_path: Path) -> None:
    config = "task=digits model=mlp optimizer=usam scheduler=polyak rho=0.1 epochs=1"
    train = ["polysweep", "train", *config.split()]
    assert "is a folder of the container and would be lost with it" in built.refused(*train)
    mounts = a_store(tmp_path, owner=0)
    assert f"this process is user {USER} of group {USER}" in built.refused(*train, mounts=mounts)
    os.chown(tmp_path / "store", USER, USER)
    assert NO_GPU[TARGET] in built.refused(*train, "--device", "cuda", mounts=mounts)


@pytest.mark.long
def test_two_builds_of_a_commit_have_the_same_layers(built: Built) -> None:
    before = built.inspect()["RootFS"]["Layers"]
    build(built.storage, "localhost/base:bookworm", TARGET, built.secret, "--no-cache")
    assert built.inspect()["RootFS"]["Layers"] == before
