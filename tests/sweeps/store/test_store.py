"""The Store names what is damaged in it, and removes what killed processes have left."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.store import Store
from tests.support.claimed import ID


def test_damage_is_named(root: str) -> None:
    store = Store(root)
    store.files.write(f"trials/{ID}/record.json", b"{")
    with pytest.raises(StoreError, match=rf"{ID}/record\.json: damaged"):
        store.record(ID)
    store.files.write(f"trials/{ID}/record.json", b'{"format": 99}')
    with pytest.raises(StoreError, match="format 99"):
        store.record(ID)
    store.files.write(f"trials/{ID}/history.parquet", b"PAR")
    with pytest.raises(StoreError, match=rf"{ID}/history\.parquet: damaged"):
        store.history(ID)


@pytest.mark.parametrize(
    "content", ["null", "[]", '{"format": 1}', '{"format": 1, "outcome": "finish", "width": 1, "epoch": 1}',
                '{"format": 1, "outcome": "finished", "width": "x", "epoch": 1}'],
)  # fmt: skip
def test_a_record_that_is_none_is_named(root: str, content: str) -> None:
    store = Store(root)
    store.files.write(f"trials/{ID}/record.json", content.encode())
    with pytest.raises(StoreError, match=rf"{ID}/record\.json: "):
        store.record(ID)
    state = store.state(ID)
    assert state.state == "failed" and f"{ID}/record.json: " in state.damage, "named, and the rest goes on"


def test_a_launch_removes_what_killed_ones_have_left_and_nothing_of_living_ones(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    living, dead = store.claims.lease(), store.claims.lease()
    content = json.loads(dead.content())
    content["process"] |= {"pid": 1, "started": 1}
    store.files.write(dead.path, json.dumps(content).encode())
    for folder in (".", "sweeps/tiny/points", f"trials/{ID}"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for age in ("0", "1"):
            (tmp_path / folder / f".record.json.{age * 32}").touch()
        os.utime(tmp_path / folder / f".record.json.{'0' * 32}", (1, 1))
    (tmp_path / "trials" / ID / ".fence-1-ab").mkdir()
    os.utime(tmp_path / "trials" / ID / ".fence-1-ab", (1, 1))
    store.remove_leftovers("tiny", [ID])
    assert store.files.names("leases") == [f"{living.id}.json"]
    assert [path.name[-1] for path in tmp_path.rglob(".*")] == ["1"] * 3, "a young one may be being written"
