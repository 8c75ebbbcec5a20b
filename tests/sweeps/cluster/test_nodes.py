"""What a node answers before a launch: its version, whether it sees the Store, whether it has a W&B login."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from polysweep.sweeps.cluster.nodes import _hello, _problem
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.provenance import THIS_VERSION
from polysweep.sweeps.store.store import Store
from polysweep.trainer.device import missing_cuda
from tests.support.processes import own_network


def test_a_node_answers_its_version_the_store_and_the_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(str(tmp_path)).files.write(".probe-1", b"")
    assert _hello(str(tmp_path), ".probe-1", "")() == {
        "version": THIS_VERSION, "store": True, "store_error": "", "key": False, "cuda": missing_cuda(), "folder": True,
    }  # fmt: skip
    assert not _hello(str(tmp_path), ".probe-2", "")()["store"], "another Store of that path"
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert _hello(str(tmp_path), ".probe-1", "")()["key"]


def test_a_node_that_cannot_write_or_reach_the_store_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    store.files.write(".probe-1", b"")

    def full(*_: object) -> None:
        raise StoreError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(type(store.files), "write", full)
        answer = _hello(store.root, ".probe-1", "")()
    assert answer["store"] and "No space left on device" in answer["store_error"]
    assert _problem(answer, store, "offline", False).startswith("cannot use the Store: store '")
    with monkeypatch.context() as patch:
        patch.setattr(type(store.files), "exists", full)
        assert _hello(store.root, ".probe-1", "")()["store_error"] == "No space left on device"
    elsewhere = tmp_path / "elsewhere"
    answer = _hello(str(elsewhere), ".probe-1", "")()
    assert "does not see the Store" in _problem(answer, store, "offline", False)
    assert not elsewhere.exists(), "a node that does not see the Store makes none"


def test_a_node_with_a_gpu_that_torch_cannot_use_is_refused_only_if_gpus_are_asked_for(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.files.write(".probe-1", b"")
    answer = {**_hello(store.root, ".probe-1", "")(), "cuda": "libcuda.so.1 is not found"}
    assert _problem(answer, store, "offline", True) == "has a GPU that torch cannot use: libcuda.so.1 is not found"
    assert _problem(answer, store, "offline", False) == ""
    assert _problem({**answer, "cuda": ""}, store, "offline", True) == ""


def test_a_node_answers_whether_it_has_the_working_directory(tmp_path: Path) -> None:
    assert _hello(str(tmp_path), ".probe-1", str(tmp_path))()["folder"]
    assert not _hello(str(tmp_path), ".probe-1", str(tmp_path / "elsewhere"))()["folder"]


ASKING = """
import sys
import ray
from polysweep.sweeps.cluster import nodes
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError

def refusal(mode, folder=""):
    try:
        nodes.check_nodes(store, mode, folder)
    except UserError as error:
        return str(error)

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
store = Store(sys.argv[1])
print(refusal("offline", "/nowhere"))
print(refusal("online"))
nodes.THIS_VERSION = {**nodes.THIS_VERSION, "polysweep": "0.0.0"}
print(refusal("offline"))
print(store.files.exists("."), [name for name in store.files.names("") if name.startswith(".probe")])
ray.shutdown()
"""


@pytest.mark.long  # starts a Ray; on a real cluster the same is asked in tests/system/test_cluster.py
def test_every_node_of_a_ray_is_asked_before_a_launch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASKING, tmp_path / "store"], cwd=tmp_path, capture_output=True, text=True, timeout=600,
        env={**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64, "RAY_USAGE_STATS_ENABLED": "0"},
        preexec_fn=own_network, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "warning: the working directory /nowhere is not on 127.0.0.1: a part of your own" in done.stderr
    fitting, without_login, older, left = done.stdout.splitlines()[-4:]
    assert fitting == "None"
    assert without_login.startswith("the node 127.0.0.1 has no W&B login: set WANDB_API_KEY")
    assert re.match(r"the node 127\.0\.0\.1 runs .*, the driver .*0\.0\.0.*: install the same on both", older)
    assert left.endswith(" []"), "no probe stays"
