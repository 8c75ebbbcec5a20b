"""The threads beside a training: saves that are due, the heartbeat, and the request to stop."""

from __future__ import annotations

import threading
from pathlib import Path

from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.heartbeat import Watch
from polysweep.sweeps.worker.stack_run import StackRun
from tests.support.results import records
from tests.support.stack_jobs import job
from tests.support.waiting import wait_for


def test_what_is_due_is_stored_while_the_next_epoch_is_trained(trained: str) -> None:
    """The epoch in flight may last for ever; the one before it is safe after `checkpoint_seconds`."""
    run = StackRun(job(trained, {"epochs": 50}, {"seed": 1, "epochs": 50}, checkpoint_seconds=0.2))
    run.advance()
    wait_for(lambda: all(r["epoch"] == 1 for r in records(trained).values()), 10)
    run.close()


def test_a_flush_saves_at_once_and_hears_the_request_to_stop(tmp_path: Path) -> None:
    store, ticks = Store(str(tmp_path)), threading.Semaphore(0)
    watch = Watch(store, store.claims.lease(), "stop-0a", ticks.release)
    watch.flush()
    assert ticks.acquire(timeout=30) and not watch.stop.is_set()
    store.files.write("stop-0a", b"")
    watch.flush()
    assert watch.stop.wait(30)
    watch.close()
    assert not any(thread.is_alive() for thread in watch._threads)
