"""A launch without Ray: its stacks one after the other in this process. What a launch on Ray has to come to."""

from __future__ import annotations

from typing import Any

from polysweep.sweeps.job import LaunchOptions
from polysweep.sweeps.scheduling.driver import LaunchResult, _result
from polysweep.sweeps.scheduling.job_queue import JobQueue
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.stack_run import StackRun

MOST_ROUNDS = 20


def one_by_one(spec: SweepSpec, store: Store, options: LaunchOptions, data: str, **checks: Any) -> LaunchResult:
    """In place of `polysweep.sweeps.scheduling.driver.launch`."""
    queue = JobQueue(spec, store, data)
    for _ in range(MOST_ROUNDS):
        if not queue.has_more(queue.begin(queue.states())):
            return _result(queue)
        while (job := queue.next()) is not None:
            stacks, states = job
            for stack in stacks:
                train(queue, StackRun(queue.job(stack, states)))
    raise AssertionError("the sweep does not end")


def train(queue: JobQueue, run: StackRun) -> None:
    """One stack, until it has ended or its point is stopped."""
    try:
        while (rows := run.advance()) is not None and not queue.update(rows):
            pass
    finally:
        run.close()
