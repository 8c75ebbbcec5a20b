"""`launch --address`: an address is checked before Ray connects, and the head answers a user's error as its text."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import ray

from polysweep.sweeps.cluster.connect import CONNECTIONS, _connect, _drive, start_at
from polysweep.sweeps.job import LaunchOptions
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError

SpecFile = Callable[..., Path]


def test_an_address_that_is_no_clusters_is_refused_before_ray_connects(spec_file: SpecFile, tmp_path: Path) -> None:
    spec, store, options = SweepSpec.load(spec_file()), Store(str(tmp_path / "store")), LaunchOptions("disabled")
    for address in ("http://head:8265", "head:10001", "ray://"):
        with pytest.raises(UserError) as caught:
            start_at(address, spec, store, options)
        assert str(caught.value) == (
            f"--address {address!r}: expected auto, on a machine of the cluster, or ray://HOST:10001"
        )
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        closed = f"127.0.0.1:{reserved.getsockname()[1]}"
    with pytest.raises(UserError, match=rf"^--address {closed}: no server is listening there \(unavailable\)$"):
        start_at(f"ray://{closed}", spec, store, options)
    assert not (tmp_path / "store").exists(), "nothing is written"


def test_the_head_answers_a_users_error_as_exit_code_and_text(tmp_path: Path) -> None:
    options = vars(LaunchOptions("disabled", address="auto"))
    assert _drive("- 1", "small", str(tmp_path), options, ".probe-1") == (
        2,
        f"the head does not see the Store {tmp_path} of this machine: use s3://, or a path that they share",
    )
    Store(str(tmp_path)).files.write(".probe-1", b"")
    assert _drive("- 1", "small", str(tmp_path), options, ".probe-1") == (
        2,
        "small.yaml:1: a sweep spec is a mapping, not a list: [1]",
    )


FORK_DIED = """Initialization failure from server:
Traceback (most recent call last):
  File "ray/util/client/server/proxier.py", line 772, in Datapath
RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err for detailed logs.
"""


@pytest.mark.parametrize(
    ("failures", "attempts", "error"),
    [
        ([], 1, ""),
        ([FORK_DIED] * 2, 3, ""),
        ([FORK_DIED] * CONNECTIONS, CONNECTIONS, "Starting Ray client server failed"),
        (["Version mismatch: the cluster was started with Ray 2.1"], 1, "Version mismatch"),
    ],
)
def test_a_connection_whose_process_on_the_head_dies_as_it_is_forked_is_tried_again(
    failures: list[str],
    attempts: int,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The race in Ray cannot be made to happen: what it raises is raised in its place."""
    tried = []

    def init(address: str, **_: object) -> None:
        tried.append(address)
        if len(tried) <= len(failures):
            raise ConnectionAbortedError(failures[len(tried) - 1])

    monkeypatch.setattr(ray, "init", init)
    try:
        _connect("ray://head:10001", {})
    except UserError as refusal:
        assert error and str(refusal).startswith("--address ray://head:10001: ") and error in str(refusal)
    else:
        assert not error
    assert tried == ["ray://head:10001"] * attempts
    assert capsys.readouterr().err.count("trying again") == attempts - 1
