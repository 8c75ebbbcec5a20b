"""What Ray Tune calls: the trainable that runs stacks, and what hands out jobs, watches them and ends them early."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final, Literal

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from polysweep.sweeps.job import Calibration, CalibrationJob, Job, RowProgress
from polysweep.sweeps.scheduling.job_queue import WAIT
from polysweep.sweeps.scheduling.progress import Progress
from polysweep.sweeps.scheduling.ray_errors import RESUME
from polysweep.sweeps.store.files import OutOfReachError, StoreError
from polysweep.sweeps.store.provenance import version_refusal
from polysweep.sweeps.store.states import FINAL
from polysweep.sweeps.tracking.sync import OfflineWriter
from polysweep.sweeps.worker.calibration import calibrate
from polysweep.sweeps.worker.job_run import JobRun
from polysweep.sweeps.worker.signals import GRACE_SECONDS, Interruption
from polysweep.trainer.wandb_runs import Online

REPORT_SECONDS: Final = 0.2
"""Least time between two reports of a worker to Tune, each of which costs the driver some milliseconds."""

REPORTS_A_SECOND: Final = 100
"""Of all workers together: about a quarter of what a driver can take from 1,000 of them (benchmarks/scale.py)."""

WORKER_SIGNALS: Final = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
"""Ctrl-C is not among them: it is the launch that asks its workers to stop."""

_online: Online | None = None


def report_seconds(workers: int) -> float:
    """Least time between two reports of one of so many workers."""
    return max(REPORT_SECONDS, workers / REPORTS_A_SECOND)


def _worker_online() -> Online:
    """This worker process's connection to the W&B server."""
    global _online  # noqa: PLW0603
    if _online is None:
        _online = Online()
    return _online


class StackTrainable(tune.Trainable):
    """The stacks of one job, or a measurement.

    `config["jobs"]` are `Job`s as dicts, `config["measurement"]` is a `CalibrationJob` as a dict, or None,
    `config["online"]` is whether epochs are logged to W&B at once, `config["report_seconds"]` is the least time between
    two reports, `config["folder"]` is the driver's working directory, `config["path"]` are folders of the user's own
    parts, and `config["version"]` is what the driver runs.
    """

    _measurement: dict[str, Any] | None = None

    def setup(self, config: dict[str, Any]) -> None:
        """Start nothing yet: a reused actor is set up before its job is known."""
        if refusal := version_refusal(config["version"]):
            raise RuntimeError(refusal)
        self._run: JobRun | None = None
        self._take(config)
        self._online = bool(config["online"])
        self._report_seconds = float(config["report_seconds"])
        with suppress(OSError):  # another node may not have it, which the launch has warned of
            os.chdir(config["folder"])
        sys.path += [folder for folder in config["path"] if folder not in sys.path]
        # A batch system sends SIGTERM to every process: Ray's own handler would drop the epochs not stored yet.
        self._interruption = Interruption(WORKER_SIGNALS, is_worker=True)
        self._interruption.start_in_order(self._flush)

    def _flush(self) -> None:
        """In a thread, when a signal has come."""
        if self._run is not None:
            self._run.flush()

    def __ray_shutdown__(self) -> None:
        """Ray calls it in an actor without any reference left, for example after an error of the driver."""
        with suppress(StoreError):
            self._close()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next job."""
        self._close()
        self._take(new_config)
        return True

    def _take(self, config: dict[str, Any]) -> None:
        self._jobs, self._measurement = config["jobs"], config["measurement"]

    def step(self) -> dict[str, Any]:
        """Train an epoch, or several short ones, because each report has a cost.

        If results decide what is run, every epoch is reported by itself.
        """
        if self._measurement:
            return {"rows": [], "done": True, **self._measure(CalibrationJob(**self._measurement))}
        rows: list[dict[str, Any]] = []
        began = time.monotonic()
        while True:
            try:
                run = self._run = self._run or self._begin()
                rows += [vars(row) for row in run.advance()]
            except OutOfReachError as error:  # it has been waited for: neither this worker nor another tries again
                return {"rows": rows, "done": True, "lost": str(error)}
            if self._interruption.signal:
                # Everything is stored; Tune starts another worker, unless the launch ends.
                os._exit(self._interruption.exit_code)
            if run.is_over or run.in_turn or time.monotonic() - began >= self._report_seconds:
                return {"rows": rows, "done": run.is_over}

    def _measure(self, job: CalibrationJob) -> dict[str, Any]:
        """K and the share of a GPU, or why they could not be measured: then the trials show what is wrong."""
        calibration, reason = None, ""
        try:
            calibration = calibrate(job, stop=lambda: self._interruption.is_over)
        except OutOfReachError as error:
            return {"lost": str(error)}
        except (Exception, SystemExit) as error:  # also of a user's own part
            reason = f"{type(error).__name__}: {error}"
        if self._interruption.signal:
            os._exit(self._interruption.exit_code)  # another worker measures
        return {"measured": {"name": job.name, "calibration": calibration and asdict(calibration), "reason": reason}}

    def _begin(self) -> JobRun:
        online = _worker_online() if self._online else None
        return JobRun([Job(**job) for job in self._jobs], online, interrupted=lambda: self._interruption.is_over)

    def cleanup(self) -> None:
        """End the process's work cleanly."""
        with suppress(StoreError):  # the driver has been told of it already
            self._close()
        if _online is not None:
            _online.close(GRACE_SECONDS - 3)

    def _close(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None


class Watcher(tune.Stopper):
    """Shows progress, mirrors ended trials in W&B, ends the experiment at an interruption.

    It is a stopper, which sees every result too, and not a callback: given a callback, Tune imports W&B and MLflow.
    """

    def __init__(
        self,
        progress: Progress,
        interruption: Interruption,
        offline: OfflineWriter | None,
        on_measured: Callable[[str, Calibration | None, str], None] = lambda *_: None,
    ) -> None:
        self._progress = progress
        self._on_measured = on_measured
        self._interruption = interruption
        self._offline = offline

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its stopper into a snapshot that nothing here ever restores."""
        return {}

    def __call__(self, _trial_id: str, result: dict[str, Any]) -> bool:
        """Called with every result, the epochs of a stack. Never stop one stack only."""
        if lost := result.get("lost"):
            self._interruption.give_up(f"{lost}; {RESUME}")
        if measured := result.get("measured"):
            calibration = measured["calibration"]
            self._on_measured(measured["name"], calibration and Calibration(**calibration), measured["reason"])
        rows = [RowProgress(**row) for row in result["rows"]]
        self._progress.update(rows)
        for row in rows:
            if self._offline and row.outcome in FINAL:
                self._offline.ended(row.trial_id)
        return False

    def stop_all(self) -> bool:
        """Called between two events. Stop if a signal has come, or the work cannot go on."""
        self._progress.tick()
        return self._interruption.is_over


class JobSearcher(Searcher):
    """Gives Tune the jobs of a supply, one when there is room for it; `WAIT` is that there is none just now."""

    def __init__(
        self,
        next_job: Callable[[], dict[str, Any] | Literal["wait"] | None],
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self._next, self._on_lost = next_job, on_lost
        self._measurements: dict[str, str] = {}  # by Tune's id the name of a measurement

    def __getstate__(self) -> dict[str, Any]:
        """As for the stopper."""
        return {}

    def suggest(self, trial_id: str) -> Any:
        """The next job, or that there is none, now or at all."""
        job = self._next()
        if isinstance(job, dict) and job.get("measurement"):
            self._measurements[trial_id] = CalibrationJob(**job["measurement"]).name
        return None if job == WAIT else job or Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:  # noqa: ARG002
        """Nothing: the result is in the Store. Say so if the workers that were to measure have all been lost."""
        if error and trial_id in self._measurements:
            self._on_lost(self._measurements[trial_id])

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the Store has it."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the Store has it."""


class Pruner(FIFOScheduler):
    """Ends the jobs that a supply decides to end."""

    def __init__(self, update: Callable[[list[RowProgress]], list[str]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._update = update

    def __getstate__(self) -> dict[str, Any]:
        """As for the stopper."""
        return {}

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:  # noqa: ARG002
        """One epoch of a job is done."""
        ended = self._update([RowProgress(**row) for row in result["rows"]])
        return TrialScheduler.STOP if ended else TrialScheduler.CONTINUE
