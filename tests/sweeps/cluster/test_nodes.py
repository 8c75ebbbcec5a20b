"""What a node answers before a launch: its version, whether it sees the Store, whether it has a W&B login."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.cluster.nodes import _hello
from polysweep.sweeps.store.provenance import THIS_VERSION
from polysweep.sweeps.store.store import Store


def test_a_node_answers_its_version_the_store_and_the_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(str(tmp_path)).files.write(".probe-1", b"")
    assert _hello(str(tmp_path), ".probe-1")() == {"version": THIS_VERSION, "store": True, "key": False}
    assert not _hello(str(tmp_path), ".probe-2")()["store"], "another Store of that path"
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert _hello(str(tmp_path), ".probe-1")()["key"]
