"""Rounds of Ray Tune: first what is free, then what other launches held and have left."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

import ray
from ray import tune

from polysweep.sweeps.job import CalibrationJob, LaunchOptions, RowProgress
from polysweep.sweeps.scheduling.job_queue import WAIT, JobQueue
from polysweep.sweeps.scheduling.progress import Progress
from polysweep.sweeps.scheduling.ray_errors import RESUME, cause_of, first_error, is_memory
from polysweep.sweeps.scheduling.ray_tune import JobSearcher, Pruner, StackTrainable, Watcher, report_seconds
from polysweep.sweeps.store.launches import LaunchLease
from polysweep.sweeps.store.provenance import THIS_VERSION
from polysweep.sweeps.store.states import State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import OfflineWriter
from polysweep.sweeps.worker.signals import Interruption
from polysweep.trainer.components.registry import import_paths, working_folder
from polysweep.trainer.errors import UserError

WAIT_SECONDS: Final = 1.0
FRUITLESS_ROUNDS: Final = 2
MEMORY_SECONDS: Final = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Waits between rounds whose workers all ended because a machine was short of memory."""
INFRASTRUCTURE_RETRIES: Final = 3
"""How often Tune restarts a job whose worker or node has died; after that the next round takes it up."""


STARTING: Final = 64
"""How many jobs may wait for their worker at once. Tune's own 1 starts 1,000 workers one after the other, which takes
an hour, and lets a worker go whose next job is not waiting yet."""


class Rounds:
    """Runs one Tune experiment after another until no trial is left, or the work is to end."""

    def __init__(
        self,
        queue: JobQueue,
        store: Store,
        options: LaunchOptions,
        folder: str,
        progress: Progress,
        interruption: Interruption,
        offline: OfflineWriter | None,
        lease: LaunchLease,
    ) -> None:
        self._queue = queue
        self._store = store
        self._options = options
        self._folder = folder
        self._progress = progress
        self._interruption = interruption
        self._watcher = Watcher(progress, interruption, offline, queue.measured)
        self._lease = lease
        self._standing: object = None  # where all trials stood before the last round
        self._fruitless = 0  # rounds in a row that have changed nothing
        self._errors: Sequence[Exception] = []  # of the last round's jobs

    def run(self) -> None:
        """One round after another. Raises `UserError` if they keep failing for reasons that are not the trials' own."""
        while not self._interruption.is_over:
            states = self._queue.states()
            self._progress.grow(self._queue.spec)
            self._progress.refresh(states)
            plan = self._queue.begin(states)
            running = [state for state in states.values() if state.state == State.RUNNING]
            if self._queue.has_more(plan):
                if not self._is_worth_a_round(states):
                    return
                self._errors = self._fit()
            elif running and not self._queue.target_reached:
                owners = ", ".join(sorted({state.holder for state in running}))
                self._progress.note(f"waiting for {len(running)} trials that {owners} runs")
                time.sleep(WAIT_SECONDS)
            else:
                return

    def _is_worth_a_round(self, states: Mapping[str, TrialState]) -> bool:
        """Whether another round may change something. If the last one lacked memory, waits until there may be some."""
        standing = {trial_id: (state.state, state.width, state.epoch) for trial_id, state in states.items()}
        self._fruitless = self._fruitless + 1 if standing == self._standing else 0
        self._standing = standing
        if any(map(is_memory, self._errors)):
            self._wait_for_memory()
            return True
        if self._fruitless < FRUITLESS_ROUNDS:
            return True
        if self._errors:
            raise UserError(first_error(self._errors))
        return False

    def _wait_for_memory(self) -> None:
        """A worker that Ray ends because memory is short is preempted: its stack continues when there may be some.

        Raises `UserError` if several rounds in a row have changed nothing.
        """
        cause = cause_of(next(filter(is_memory, self._errors)))
        if self._fruitless >= len(MEMORY_SECONDS):
            raise UserError(
                f"{cause}, and Ray ends every worker there: free some, or lower launch.concurrency or launch.stack; "
                f"{RESUME}"
            )
        deadline = time.monotonic() + MEMORY_SECONDS[self._fruitless]
        while time.monotonic() < deadline and not self._interruption.is_over:
            self._progress.note(f"waiting: {cause}")
            time.sleep(WAIT_SECONDS)

    def _next_job(self) -> dict[str, Any] | Literal["wait"] | None:
        """The next job as the config of a Tune trial."""
        if self._interruption.is_over:
            return None
        job = self._queue.next()
        if job is None or job == WAIT:
            return job
        if isinstance(job, CalibrationJob):
            self._progress.note(f"measuring K of {job.config['model']} on {job.config['task']}")
            return {"jobs": [], "measurement": asdict(job), "gpus": float(job.device == "cuda")}
        stacks, states = job
        if self._queue.spec.method == "bayes":
            self._progress.grow(self._queue.spec)
        jobs = [self._queue.job(stack, states, self._lease.id, self._lease.stop_file) for stack in stacks]
        gpus = self._queue.widths.gpus(stacks[0].trials[0])
        return {"jobs": [asdict(job) for job in jobs], "measurement": None, "gpus": gpus}

    def _update(self, rows: list[RowProgress]) -> list[str]:
        ended = self._queue.update(rows)
        last = {row.trial_id: row for row in rows}
        self._progress.update([RowProgress(t, last[t].epoch, State.STOPPED, {}) for t in ended if t in last])
        return ended

    def _fit(self) -> Sequence[Exception]:
        """One Tune experiment; returns when all its jobs have ended or the work was interrupted.

        Returns the errors of jobs that failed again and again for reasons that are not the trials' own.
        """
        launch, target = self._queue.spec.launch, self._queue.spec.metric.target
        # A job that waits is started also after the target is reached, and bayes proposes it without later results.
        one_by_one = target is not None or self._queue.spec.method == "bayes"
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = "1" if one_by_one else str(STARTING)
        tuner = tune.Tuner(
            tune.with_resources(
                StackTrainable, lambda config: tune.PlacementGroupFactory([{"CPU": launch.cpus, "GPU": config["gpus"]}])
            ),
            param_space={
                "online": self._options.wandb == "online",
                "report_seconds": report_seconds(launch.concurrency or self._slots()),
                "folder": working_folder(),
                "path": import_paths() if self._options.address else [folder for folder in sys.path if folder],
                "version": THIS_VERSION,
            },
            tune_config=tune.TuneConfig(
                reuse_actors=True,
                num_samples=-1,
                search_alg=JobSearcher(
                    self._next_job, lambda name: self._queue.measured(name, None, "its workers were lost")
                ),
                scheduler=Pruner(self._update),
                max_concurrent_trials=launch.concurrency or (self._slots() if self._queue.spec.by_points else None),
            ),
            run_config=tune.RunConfig(
                storage_path=self._folder,
                stop=self._watcher,
                verbose=1 if self._options.verbose else 0,
                failure_config=tune.FailureConfig(max_failures=INFRASTRUCTURE_RETRIES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        try:
            # Tune returns a text if it cannot unpickle what a worker raised.
            return [e if isinstance(e, Exception) else RuntimeError(e) for e in tuner.fit().errors]
        except Exception as error:  # Tune does not expect this one; actors that it has lost end by themselves
            if not is_memory(error):
                raise
            return [error.with_traceback(None)]

    def _slots(self) -> int:
        """Stacks that there is room for."""
        present, launch = ray.cluster_resources(), self._queue.spec.launch
        slots = int(present.get("CPU", 1)) // launch.cpus
        if launch.gpus and launch.gpus != "auto":
            slots = min(slots, int(present.get("GPU", 0) / launch.gpus))
        return max(1, slots)
