"""What killed processes have left is removed by the next one, and what living ones have is not."""

from __future__ import annotations

import json
from pathlib import Path

from polysweep.trainer.tasks import cifar
from tests.support import mini_cifar


def test_what_killed_launches_leave_in_the_store_is_removed_by_the_next_one(tmp_path: Path) -> None:
    from polysweep.sweeps.store.launches import LaunchLease
    from polysweep.sweeps.store.process import Process
    from polysweep.sweeps.store.store import Store

    store = Store(str(tmp_path))
    dead = {"process": {**vars(Process.this()), "started": 1}, "since": 0.0, "beats": 1, "released": False}
    store.files.write("sweeps/small/launch-0a.json", json.dumps(dead).encode())
    for name in ("stop-0a", "stop-0b"):
        store.files.write(f"sweeps/small/{name}", b"")
    with LaunchLease(store, "small", lambda: None, lambda _: None) as alive:
        alive.ask_to_stop()
        with LaunchLease(store, "small", lambda: None, lambda _: None) as other:
            names = {f"launch-{alive.id}.json", f"stop-{alive.id}", f"launch-{other.id}.json"}
            assert set(store.files.names("sweeps/small")) == names
    assert not store.files.names("sweeps/small")


def test_what_a_killed_process_was_decoding_is_removed_once_nobody_decodes(tmp_path: Path) -> None:
    mini_cifar.write_archives(tmp_path)
    mini = mini_cifar.cifar10
    mini.prepare(tmp_path)
    leftover, other = tmp_path / ".mini10-abc", tmp_path / ".mini100-abc"
    for folder in (leftover, other):
        folder.mkdir()
        (folder / "train_images.npy").write_bytes(b"half")
    with cifar.filelock.FileLock(tmp_path / "mini10-decoded-1.lock"):
        mini.prepare(tmp_path)
        assert leftover.exists(), "somebody is decoding"
    mini.prepare(tmp_path)
    assert not leftover.exists() and other.exists()
