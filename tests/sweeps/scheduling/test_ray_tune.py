"""What Ray Tune calls: the worker's results, and what the driver does with them."""

from __future__ import annotations

import pytest

from polysweep.sweeps.store.files import OutOfReachError


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
