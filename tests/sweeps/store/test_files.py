"""Files of a Store are replaced whole; an unreachable Store is waited for once, by all of a launch together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polysweep.sweeps.store import files
from polysweep.sweeps.store.files import Fence, OutOfReachError, StoreError
from polysweep.sweeps.store.local_files import LocalFiles
from polysweep.sweeps.store.store import Store


class Failing(LocalFiles):
    """A disk that is full, and a clock that goes on only while somebody waits."""

    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        self.patience, self.full, self.attempts, self.now = 10.0, True, 0, 0.0
        monkeypatch.setattr(files.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(files.time, "sleep", self._pass)

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def _write(self, path: str, content: bytes, keep_as: str | None, fence: Fence | None) -> None:
        self.attempts += 1
        if self.full:
            raise OSError(28, "No space left on device")
        super()._write(path, content, keep_as, fence)


def test_the_patience_of_an_outage_is_spent_once_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = Failing(str(tmp_path), monkeypatch)
    for path in ("a", "b", "c"):
        with pytest.raises(OutOfReachError, match=f"{path}: cannot be written: No space left on device"):
            place.write(path, b"1")
    assert place.now <= 10.0 and place.attempts > 4, "the first call has waited"
    assert len(caplog.records) == 1, "and said so"
    place.full = False
    place.write("a", b"2")
    place.full = True
    before = place.now
    with pytest.raises(OutOfReachError):
        place.write("a", b"3")
    assert 5.0 < place.now - before <= 10.0, "another outage has a patience of its own"
    assert place.read("a") == b"2" and len(caplog.records) == 2


def test_what_waiting_does_not_mend_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Failing(str(tmp_path), monkeypatch)
    monkeypatch.setattr(place, "_write", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(StoreError, match="Permission denied") as refused:
        place.write("a", b"1")
    assert place.now == 0.0 and not isinstance(refused.value, OutOfReachError), "it need not be the whole Store"


def test_files_are_replaced_whole(root: str) -> None:
    store = Store(root)
    assert store.files.read("a/b") is None
    store.files.write("a/b", b"one")
    store.files.write("a/b", b"two")
    assert store.files.read("a/b") == b"two"
    assert store.files.names("a") == ["b"], "nothing temporary stays"


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
