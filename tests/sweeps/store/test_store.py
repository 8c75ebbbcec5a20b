"""The Store: atomic writes and claims, on local files and on an object store."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polysweep.sweeps.store import claims as claims_module
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.process import Process, _start_time
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import HISTORY_COLUMNS

ID = "0123456789abcdef"


def test_files_are_replaced_whole(root: str) -> None:
    store = Store(root)
    assert store.files.read("a/b") is None
    store.files.write("a/b", b"one")
    store.files.write("a/b", b"two")
    assert store.files.read("a/b") == b"two"
    assert store.files.names("a") == ["b"], "nothing temporary stays"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    store.files.write("a/b", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="a/b: cannot be written: No space"):
        store.files.write("a/b", b"new")
    assert store.files.read("a/b") == b"old"
    assert store.files.names("a") == ["b"]


def test_a_patient_store_waits_for_space_and_an_impatient_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [OSError(28, "No space left on device")] * 2 + [OSError(5, "Input/output error")]

    def full(_: int) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="Input/output error"):
        Store(str(tmp_path)).files.write("a/b", b"new")
    Store(str(tmp_path), patience=30).files.write("a/b", b"new")
    assert not failures and Store(str(tmp_path)).files.read("a/b") == b"new"
    failures.append(PermissionError(13, "Permission denied"))
    with pytest.raises(StoreError, match="Permission denied"):
        Store(str(tmp_path), patience=3600).files.write("a/b", b"new")  # waiting would not help


def test_history_keeps_every_bit_and_its_types(root: str) -> None:
    store = Store(root)
    rows = [{**dict.fromkeys(HISTORY_COLUMNS), "epoch": 1, "step": 3, "train/loss": 0.1 + 0.2, "partial": False}]
    store.write_history(ID, rows)
    assert store.history(ID) == rows
    found = store.history(ID)[0]
    assert [type(found[n]) for n in ("epoch", "step", "train/loss", "val/loss", "partial")] == [
        int, int, float, type(None), bool,
    ]  # fmt: skip


def test_a_claim_is_exclusive_until_it_is_released(root: str) -> None:
    store = Store(root)
    claim = store.claim(ID)
    assert claim is not None and claim.is_held()
    assert Store(root).claim(ID) is None
    assert str(os.getpid()) in str(store.owner(ID))
    claim.release()
    assert store.owner(ID) is None
    second = store.claim(ID)
    assert second is not None and second.generation == 2
    assert not claim.is_held()


def _race(root: str, barrier: object, wins: object) -> None:
    store = Store(root)
    for index in range(50):
        barrier.wait()  # type: ignore[attr-defined]
        if store.claim(f"{index:016x}") is not None:
            wins.put(index)  # type: ignore[attr-defined]
    barrier.wait()  # type: ignore[attr-defined]


def test_of_four_processes_that_claim_at_once_one_wins(root: str) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, wins = context.Barrier(4), context.Queue()
    racers = [context.Process(target=_race, args=(root, barrier, wins)) for _ in range(4)]
    for racer in racers:
        racer.start()
    won = sorted(wins.get(timeout=60) for _ in range(50))
    for racer in racers:
        racer.join()
    assert won == list(range(50))
    assert wins.empty()


def test_a_dead_process_holds_nothing(root: str) -> None:
    code = (
        "import os; from polysweep.sweeps.store.store import Store; "
        f"Store({root!r}).claim({ID!r}); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    store = Store(root)
    assert store.claims.generation(ID) == 1
    assert store.owner(ID) is None
    assert store.claim(ID) is not None


def test_a_claim_of_another_machine_is_stale_when_its_heartbeat_stands_still_on_our_clock(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(root)
    lease = store.claims.lease()
    claim = store.claim(ID, lease)
    assert claim is not None
    content = json.loads(lease.content())
    content["process"] |= {"boot": "another", "host": "node7"}
    store.files.write(lease.path, json.dumps(content).encode())
    now = time.monotonic()
    clock = [now]
    monkeypatch.setattr(claims_module.time, "monotonic", lambda: clock[0])
    assert str(store.owner(ID)).startswith("node7")
    clock[0] = now + 59
    assert store.owner(ID) is not None
    content["beats"] += 1
    store.files.write(lease.path, json.dumps(content).encode())
    clock[0] = now + 100
    assert store.owner(ID) is not None, "it has beaten since"
    clock[0] = now + 161
    assert store.owner(ID) is None
    assert not claim.is_held() or store.claim(ID, supersedes=1) is not None


def test_this_process_is_not_dead_and_a_finished_one_is() -> None:
    assert not Process.this().is_dead()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = Process(**{**vars(Process.this()), "pid": child.pid, "started": _start_time(child.pid)})
    assert not identity.is_dead()
    child.communicate(b"\n")
    assert identity.is_dead()


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


def test_what_is_no_store_is_named() -> None:
    for root in ("memory://store", "nothing://at/all", "", "s3://", "zip::s3://a/b"):
        with pytest.raises(StoreError, match="store"):
            Store(root)


def test_a_bucket_that_is_not_there_is_named(s3: str) -> None:
    with pytest.raises(StoreError, match="no-such-bucket-anywhere"):
        Store("s3://no-such-bucket-anywhere/store").check_writable()
    Store(f"{s3}/store").check_writable()


def test_what_a_write_replaces_can_be_kept(root: str) -> None:
    files = Store(root).files
    files.write("a/new", b"1", keep_as="a/before")
    assert files.names("a") == ["new"]
    files.write("a/new", b"2", keep_as="a/before")
    assert (files.read("a/new"), files.read("a/before")) == (b"2", b"1")


def test_many_files_are_read_at_once(root: str) -> None:
    files = Store(root).files
    written = {f"a/{index}": bytes([index]) for index in range(20)}
    for path, content in written.items():
        files.write(path, content)
    assert files.read_many([*written, "a/none"]) == {**written, "a/none": None}


def test_a_worker_takes_over_what_its_own_launch_has_lost(root: str) -> None:
    """Its claim is another machine's, so that it does not look dead."""
    store = Store(root)
    lease = store.claims.lease("one")
    claim = store.claim(ID, lease)
    assert claim is not None
    content = json.loads(lease.content())
    content["process"] |= {"boot": "another", "host": "node7"}
    store.files.write(lease.path, json.dumps(content).encode())
    assert store.claim(ID) is None and store.claim(ID, store.claims.lease("two")) is None
    taken = store.claim(ID, store.claims.lease("one"))
    assert taken is not None and taken.generation == 2 and not claim.is_held()
