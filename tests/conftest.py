"""Shared parts of the tests: isolated processes, small specs, a loopback W&B server."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support.loopback_wandb import Wandb
from tests.support.processes import as_from_a_terminal, kill_group, own_network
from tests.support.project import POLYSWEEP, ROOT
from tests.support.waiting import wait_for

hypothesis.settings.register_profile("untimed", deadline=None)  # no test depends on how fast the machine is
hypothesis.settings.load_profile("untimed")


LONGEST = ("test_readme", "test_chaos", "test_searches", "test_launch")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deal the tests of whole launches out to all workers, and let each begin with its own: they take longest."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    system = [item for item in items if item.nodeid.startswith("tests/system/")]
    system.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
    units = [item for item in items if not item.nodeid.startswith("tests/system/")]
    share = math.ceil(len(units) / workers)
    items[:] = [
        item
        for worker in range(workers)
        for item in (*system[worker::workers], *units[worker * share : (worker + 1) * share])
    ]


@pytest.fixture(autouse=True)
def no_outside_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the user's W&B login nor a Store of theirs reaches a test."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "POLYSWEEP_", "RAY_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # nobody listens there


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `polysweep ...` in the test's folder, in a network of its own, to its end."""

    def run_polysweep(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [POLYSWEEP, *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=options.pop("timeout", 600),  # of a hang; a busy machine takes its time
            preexec_fn=options.pop("preexec_fn", own_network),
            check=False,
            **options,
        )

    return run_polysweep


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """As `run`, in this process: for tests that are not about the process, whose imports take most of its time."""

    def run_polysweep(*arguments: str | Path, **limits: int) -> subprocess.CompletedProcess[str]:
        from tests.support.inprocess import polysweep

        monkeypatch.setenv("COLUMNS", "80")  # also where the tests run on a terminal
        with contextlib.chdir(tmp_path):
            return subprocess.CompletedProcess(arguments, *polysweep(*arguments, **limits))

    return run_polysweep


@pytest.fixture
def launch_here(
    run_here: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`polysweep launch ...` in this process and without Ray, for tests that need its results."""

    def launch(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        from polysweep.sweeps.scheduling import driver, ray_environment
        from tests.support.without_ray import one_by_one

        with monkeypatch.context() as patch:
            patch.setattr(driver, "launch", one_by_one)
            patch.setattr(ray_environment, "prepare", lambda *_, **__: None)
            return run_here("launch", *arguments, "--wandb", "disabled", cpu_seconds=600, wall_seconds=1800)

    return launch


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `polysweep ...` as the head of a process group; the group is killed when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def start_polysweep(*arguments: str | Path, isolated: bool = True) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [POLYSWEEP, *map(str, arguments)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=partial(as_from_a_terminal, isolated),
        )
        started.append(process)
        return process

    yield start_polysweep
    for process in started:
        kill_group(process)
        assert process.stdout is not None
        process.stdout.close()


MOTO = Path(sys.executable).parent.parent / "moto/bin/python"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[str, int]]:
    """An S3 endpoint on loopback; yields its address and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert MOTO.exists(), "run `make test`: it installs the S3 server into an environment of its own"
    process = subprocess.Popen(
        [MOTO, ROOT / "tests/support/s3_server.py", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _listens(port), 60)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def s3(s3_server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty bucket, `s3://name`; endpoint and credentials are in the environment."""
    import s3fs

    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server[0],
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(bucket)
    return f"s3://{bucket}"


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.long)])
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """As `root`, for tests that train: on the object store they belong to the long ones."""
    return _root(request, tmp_path)


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a Store may be: a path, and an address of an object store."""
    return _root(request, tmp_path)


def _root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "store")
    return f"{request.getfixturevalue('s3')}/store"


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a spec from a Python value."""

    def write(name: str = "small.yaml", **changes: Any) -> Path:
        spec = {
            "parameters": {
                "task": {"value": "digits"},
                "model": {"value": "mlp"},
                "optimizer": {"value": "usam"},
                "rho": {"values": [0.1, 0.2]},
                "weight_decay": {"value": 5e-4},
                "batch_size": {"value": 256},
                "epochs": {"value": 3},
            },
            "variants": [
                {"scheduler": {"value": "constant"}, "lr": {"values": [0.01, 0.1]}},
                {"scheduler": {"value": "polyak"}},
            ],
            "tuned": ["lr"],
            "seeds": 2,
            **changes,
        }
        path = tmp_path / name
        path.write_text(json.dumps(spec))  # JSON is YAML
        return path

    return write


@pytest.fixture
def fresh_client(no_outside_settings: None) -> Iterator[None]:
    """W&B's client in this process reads its environment once."""
    from polysweep.trainer.wandb_client import end_client

    end_client(0.5)
    yield
    end_client(0.5)


@pytest.fixture(scope="session")
def wandb_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of what makes loopback W&B servers."""
    port_file = tmp_path_factory.mktemp("wandb") / "port"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.wandb_server", "--hub", "--port-file", port_file], cwd=ROOT
    )
    try:
        wait_for(port_file.exists, 60)
        yield f"http://127.0.0.1:{port_file.read_text()}"
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture
def wandb_server(wandb_hub: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wandb]:
    """A loopback server of the test's own; the environment points at it."""
    with urllib.request.urlopen(f"{wandb_hub}/open", b"", timeout=30) as answer:
        port = json.load(answer)
    server = Wandb(port)
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    yield server
    with urllib.request.urlopen(f"{wandb_hub}/close", str(port).encode(), timeout=30):
        pass
