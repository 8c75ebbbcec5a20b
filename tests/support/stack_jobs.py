"""Jobs of one small stack, and the whole of one run."""

from __future__ import annotations

from polysweep.sweeps.job import Job
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.config import TrialConfig
from tests.support.project import TINY


def job(store: str, *changes: dict, width: int = 2, **settings: object) -> Job:
    configs = [TrialConfig.parse({**TINY, **change}).canonical() for change in changes]
    return Job(store, tuple(configs), width, **{"epoch": 0, **settings})


def finish(job: Job) -> None:
    run = StackRun(job)
    try:
        while run.advance() is not None and not run.is_over:
            pass
    finally:
        run.close()
