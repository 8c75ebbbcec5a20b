"""Ray Tune schedules the stacks of a plan. The only module that imports ray.

One Tune trial is one stack: a class Trainable in a reused actor, one epoch a step. Tune's own checkpoints and
identities are not used: what a trial is and where it stands is the Store's.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Everything of a local Ray listens on loopback only, and asks for a token that lives as long as the launch.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # the new one prints a table even when told to be silent
os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = str(10**9)
os.environ["TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S"] = str(10**9)

import ray
from ray import tune
from ray.tune.experiment import Trial

from sweeps.interruption import GRACE_SECONDS, Interruption
from sweeps.plan import FINAL, StackPlan, TrialState, plan
from sweeps.preflight import import_paths
from sweeps.progress import Progress
from sweeps.reconcile import OfflineWriter
from sweeps.record import Job, mark_synced
from sweeps.spec import SweepSpec
from sweeps.store import Store
from sweeps.worker import RowProgress, StackRun
from trainer.registry import UserError
from trainer.tracking import Mode, Online

WAIT_SECONDS: Final = 1.0
INFRASTRUCTURE_RETRIES: Final = 3


_online: Online | None = None


def _worker_online(store: str) -> Online:
    """This worker process's connection to the W&B server."""
    global _online  # noqa: PLW0603
    if _online is None:
        _online = Online(lambda trial_id: mark_synced(Store(store), trial_id))
    return _online


class StackTrainable(tune.Trainable):
    """One stack; `config["job"]` is a `Job` as a dict, `config["online"]` whether W&B is logged to as it trains.

    `config["path"]` are folders of the user's own parts.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Start nothing yet: a reused actor is set up before it is known what for."""
        self._run: StackRun | None = None
        self._job = Job(**config["job"])
        self._online = bool(config["online"])
        sys.path += [folder for folder in config["path"] if folder not in sys.path]
        # A batch system sends SIGTERM to every process: Ray's own handler would drop the epochs not stored yet.
        self._terminated = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._terminated.set())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next stack."""
        self._close()
        self._job = Job(**new_config["job"])
        return True

    def step(self) -> dict[str, Any]:
        """Train one epoch of the stack."""
        if self._run is None:
            online = _worker_online(self._job.store) if self._online else None
            self._run = StackRun(self._job, online, interrupted=self._terminated.is_set)
        progress = self._run.advance()
        over = progress is None or self._run.is_over
        if over:
            self._close()
        if self._terminated.is_set():
            os._exit(128 + signal.SIGTERM)  # everything is stored; Tune starts another worker, if it goes on at all
        return {"rows": [vars(row) for row in progress or []], "done": over}

    def cleanup(self) -> None:
        """End the process's work in order."""
        self._close()
        if _online is not None:
            _online.drain(GRACE_SECONDS - 2)

    def _close(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None


class _Watcher(tune.Callback, tune.Stopper):
    """Shows progress, mirrors ended trials in W&B, ends the experiment at an interruption."""

    def __init__(self, progress: Progress, interruption: Interruption, offline: OfflineWriter | None) -> None:
        self._progress = progress
        self._interruption = interruption
        self._offline = offline

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks into a snapshot that nothing here ever restores."""
        return {}

    def on_trial_result(
        self,
        iteration: int,  # noqa: ARG002
        trials: list[Trial],  # noqa: ARG002
        trial: Trial,  # noqa: ARG002
        result: dict[str, Any],
        **_info: Any,
    ) -> None:
        """One epoch of a stack is done."""
        rows = [RowProgress(**row) for row in result["rows"]]
        self._progress.update(rows)
        for row in rows:
            if self._offline and row.outcome in FINAL:
                self._offline.ended(row.trial_id)

    def __call__(self, _trial_id: str, _result: dict[str, Any]) -> bool:
        """Never stop one stack only."""
        return False

    def stop_all(self) -> bool:
        """Stop when a signal has come."""
        return bool(self._interruption.signal)


@dataclass(frozen=True)
class LaunchResult:
    """How a launch ended: the trials' states, and the exit code."""

    states: Mapping[str, TrialState]
    exit_code: int


def launch(spec: SweepSpec, store: Store, *, wandb: Mode, data: str, verbose: bool = False) -> LaunchResult:
    """Run every trial of `spec` that is new or interrupted, and wait for those that another launch runs.

    Raises `UserError` where the machine lacks what a stack asks for.
    """
    cores = len(os.sched_getaffinity(0))
    if spec.launch.cpus > cores:
        raise UserError(f"launch.cpus: {spec.launch.cpus} per stack, but this machine has {cores} cores")
    stop_file = store.stop_file(spec.name, secrets.token_hex(8))
    interruption = Interruption(lambda: store.write(stop_file, b""))
    interruption.install()
    try:
        with _local_ray(cores, verbose) as folder:
            interruption.install()
            if spec.launch.gpus > ray.cluster_resources().get("GPU", 0):
                raise UserError(f"launch.gpus: {spec.launch.gpus} per stack, but Ray finds no such GPU here")
            configs = {trial.trial_id: trial.config for trial in spec.trials}
            offline = OfflineWriter(store, configs) if wandb == "offline" else None
            try:
                with Progress(spec, store.states(spec)) as progress:
                    watcher = _Watcher(progress, interruption, offline)
                    _Rounds(spec, store, wandb, data, folder, progress, interruption, watcher, stop_file, verbose).run()
            finally:
                if offline:
                    offline.close(wait=not interruption.signal)
    finally:
        store.remove(stop_file)
    states = store.states(spec)
    if interruption.signal:
        return LaunchResult(states, interruption.exit_code)
    ended_well = all(state.state in FINAL and state.state != "failed" for state in states.values())
    return LaunchResult(states, 0 if ended_well else 1)


@dataclass(frozen=True)
class _Rounds:
    """Rounds of Tune: what is free first; then what others held and have left."""

    spec: SweepSpec
    store: Store
    wandb: Mode
    data: str  # folder of the data sets
    folder: str
    progress: Progress
    interruption: Interruption
    watcher: _Watcher
    stop_file: str
    verbose: bool

    def run(self) -> None:
        """Until nothing is left, or a signal has come."""
        before: object = None
        errors: list[Exception] = []
        while not self.interruption.signal:
            states = self.store.states(self.spec)
            self.progress.refresh(states)
            stacks = plan(self.spec, states, self.data).stacks
            held = [state for state in states.values() if state.state == "running"]
            if stacks:
                if before == states:  # a whole round changed nothing: another one would not either
                    if errors:
                        raise RuntimeError(f"{len(errors)} stacks could not be run; the first error:\n{errors[0]}")
                    return
                before = states
                errors = self._fit([self._job(stack, states) for stack in stacks])
            elif held:
                holders = ", ".join(sorted({state.holder for state in held}))
                self.progress.note(f"waiting for {len(held)} trials that {holders} runs")
                time.sleep(WAIT_SECONDS)
            else:
                return

    def _job(self, stack: StackPlan, states: Mapping[str, TrialState]) -> dict[str, Any]:
        launch_ = self.spec.launch
        return asdict(
            Job(
                store=self.store.root,
                configs=tuple(trial.config.canonical() for trial in stack.trials),
                width=stack.width,
                epoch=stack.epoch,
                sweeps=(self.spec.name,),
                over={trial.trial_id: states[trial.trial_id].generation for trial in stack.trials},
                device=launch_.device,
                data=self.data,
                threads=launch_.cpus,
                checkpoint_seconds=launch_.checkpoint_seconds,
                keep=launch_.keep,
                metric=self.spec.metric.name,
                goal=self.spec.metric.goal,
                stop_file=self.stop_file,
            )
        )

    def _fit(self, jobs: Sequence[Mapping[str, Any]]) -> list[Exception]:
        """One Tune experiment over the jobs; returns when all have ended or an interruption came.

        Returns the errors of stacks that failed again and again for reasons that are not the trials' own.
        """
        resources = {"cpu": self.spec.launch.cpus, "gpu": self.spec.launch.gpus}
        results = tune.Tuner(
            tune.with_resources(StackTrainable, resources),
            param_space={"job": tune.grid_search(list(jobs)), "online": self.wandb == "online", "path": import_paths()},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(
                storage_path=self.folder,
                stop=self.watcher,
                callbacks=[self.watcher],
                verbose=1 if self.verbose else 0,
                failure_config=tune.FailureConfig(max_failures=INFRASTRUCTURE_RETRIES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()
        return list(results.errors)


@contextmanager
def _local_ray(cores: int, verbose: bool) -> Iterator[str]:
    """A Ray of this process's own, on loopback, in a temporary folder that goes with it; yields the folder."""
    folder = tempfile.mkdtemp(prefix="polysweep-")
    logging.getLogger("ray").setLevel(logging.INFO if verbose else logging.CRITICAL)
    try:
        ray.init(
            address="local",
            num_cpus=cores,
            include_dashboard=False,
            log_to_driver=verbose,
            logging_level=logging.INFO if verbose else logging.CRITICAL,
            _temp_dir=folder,
        )
        yield folder
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
