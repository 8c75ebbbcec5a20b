"""A launch without Ray: its stacks one after the other in this process. What a launch on Ray has to come to."""

from __future__ import annotations

from typing import Any

from polysweep.sweeps.job import CalibrationJob, LaunchOptions
from polysweep.sweeps.scheduling.driver import LaunchResult, _result
from polysweep.sweeps.scheduling.job_queue import JobQueue
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.calibration import calibrate
from polysweep.sweeps.worker.job_run import JobRun

MOST_ROUNDS = 20


def one_by_one(spec: SweepSpec, store: Store, options: LaunchOptions, data: str, **checks: Any) -> LaunchResult:
    """In place of `polysweep.sweeps.scheduling.driver.launch`."""
    queue = JobQueue(spec, store, data)
    for _ in range(MOST_ROUNDS):
        if not queue.has_more(queue.begin(queue.states())):
            return _result(queue)
        while (job := queue.next()) is not None:
            if isinstance(job, CalibrationJob):
                queue.measured(job.name, calibrate(job))
                continue
            stacks, states = job
            train(queue, JobRun([queue.job(stack, states) for stack in stacks]))
    raise AssertionError("the sweep does not end")


def train(queue: JobQueue, run: JobRun) -> None:
    """The stacks of a job, until they have ended or their point is stopped."""
    try:
        while not run.is_over and not queue.update(run.advance()):
            pass
    finally:
        run.close()
