"""The threads beside a training: saves that are due, the heartbeat, and the request to stop."""

from __future__ import annotations

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
