"""A Store that is out of reach is waited for once, by all of a launch together."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.store import files
from polysweep.sweeps.store.files import Fence, OutOfReachError, StoreError
from polysweep.sweeps.store.local_files import LocalFiles


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


def test_a_worker_that_has_waited_for_its_store_says_so_and_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from polysweep.sweeps.scheduling.ray_tune import StackTrainable, Watcher
    from polysweep.sweeps.worker.signals import Interruption

    class Full:
        is_over = False

        def advance(self) -> None:
            raise OutOfReachError("store/x: cannot be written: No space left on device")

    worker = StackTrainable.__new__(StackTrainable)
    worker._run, worker._interruption = Full(), Interruption()  # type: ignore[assignment]
    worker._jobs = [type("Job", (), {"early": False})()]  # type: ignore[list-item]
    result = worker.step()
    assert result["done"] and result["rows"] == []
    interruption = Interruption()
    quiet = type("Quiet", (), {"update": lambda *_: None, "tick": lambda *_: None})()
    watcher = Watcher(quiet, interruption, None)
    assert not watcher("trial", result)
    assert watcher.stop_all() and interruption.lost.startswith("store/x: cannot be written: No space left on device; ")
