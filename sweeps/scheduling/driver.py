"""Ray Tune schedules the stacks of a plan. Ray is imported here, in `tuning.py` and in `cluster.py` only.

One Tune trial is one job of `decisions.JobQueue`: a class Trainable in a reused actor, one epoch a step. Tune's own
checkpoints and identities are not used: what a trial is and where it stands is the Store's.
"""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import ray
from ray import tune

from polysweep.sweeps.job import Job, RowProgress
from polysweep.sweeps.planning.stacks import StackPlan
from polysweep.sweeps.scheduling.job_queue import JobQueue
from polysweep.sweeps.scheduling.local_ray import local_ray, watched_cluster
from polysweep.sweeps.scheduling.progress import Progress
from polysweep.sweeps.scheduling.ray_errors import RESUME, cause_of, first_error, is_memory, one_line_errors
from polysweep.sweeps.scheduling.ray_tune import JobSearcher, Pruner, StackTrainable, Watcher
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.launches import LaunchLease
from polysweep.sweeps.store.provenance import THIS_VERSION
from polysweep.sweeps.store.states import FINAL, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import OfflineWriter
from polysweep.sweeps.worker.signals import EXIT_SECONDS, GRACE_SECONDS, Interruption
from polysweep.trainer.components.registry import import_paths
from polysweep.trainer.errors import UserError
from polysweep.trainer.wandb_runs import Mode

WAIT_SECONDS: Final = 1.0
FRUITLESS_ROUNDS: Final = 2
MEMORY_SECONDS: Final = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Waits between rounds whose workers were all ended for want of memory."""
INFRASTRUCTURE_RETRIES: Final = 3
"""Times that Tune starts a job again whose worker or node has died; after that the next round takes it up."""


@dataclass(frozen=True)
class LaunchResult:
    """How a launch ended: the sweep with all its points, the trials' states, the exit code, and why it ended early."""

    spec: SweepSpec
    states: Mapping[str, TrialState]
    exit_code: int
    reason: str = ""


@dataclass(frozen=True)
class Settings:
    """What a launch is told besides its spec."""

    store: Store
    wandb: Mode
    data: str  # folder of the data sets
    verbose: bool = False
    address: str | None = None  # of a cluster; None: a Ray of this process's own
    patience: float = 0.0  # of the workers' Store
    launch_id: str = ""
    is_alive: Callable[[], bool] = lambda: True  # whether the cluster answers


def launch(spec: SweepSpec, settings: Settings, check: Callable[[], None] = lambda: None) -> LaunchResult:
    """Run every trial of `spec` that is new or interrupted, and wait for those that another launch runs.

    `check` is called once Ray is up. Raises `UserError` where the machines lack what a stack asks for.
    """
    store = settings.store
    interruption = Interruption.of_process()
    with (
        LaunchLease(
            store,
            spec.name,
            asked=lambda: interruption.request(signal.SIGTERM),
            lost=lambda reason: interruption.give_up(f"{reason}; {RESUME}"),
            launch_id=settings.launch_id,
        ) as registration,
        interruption.in_order(registration.ask_to_stop, EXIT_SECONDS),
    ):
        with one_line_errors(), _ray(settings, interruption) as folder:
            interruption.install()  # ray.init has replaced a handler
            interruption.grace = GRACE_SECONDS  # from here on there is something to save
            check()
            _check_resources(spec, settings.address)
            supply = JobQueue(spec, store, settings.data)
            offline = OfflineWriter(store, _flat_of(supply), (spec.name,)) if settings.wandb == "offline" else None
            try:
                with Progress(supply.spec, supply.states()) as progress:
                    rounds = _Rounds(supply, settings, folder, progress, interruption, offline, registration)
                    rounds.run()
            finally:
                if offline:
                    offline.close(wait=not interruption.is_over)
        if interruption.lost and not interruption.signal:
            raise UserError(interruption.lost)
    states = supply.states()
    if interruption.signal:
        return LaunchResult(supply.spec, states, interruption.exit_code)
    left = [state for state in states.values() if state.state not in FINAL]
    failed = any(state.state == "failed" for state in states.values())
    if supply.target_reached:
        reason = f"{spec.metric.name} has reached its target {spec.metric.target}; {len(left)} trials are not started"
        return LaunchResult(supply.spec, states, int(failed), reason)
    reason = "bayes finds no point that has not been tried; the sweep is over" if supply.exhausted else ""
    return LaunchResult(supply.spec, states, int(failed or bool(left)), reason)


def _flat_of(supply: JobQueue) -> Callable[[str], Mapping[str, Any]]:
    """Looks up a trial's flat config, also of one that was proposed meanwhile."""
    known: dict[str, Mapping[str, Any]] = {}

    def flat_of(trial_id: str) -> Mapping[str, Any]:
        if trial_id not in known:
            known.update({trial.trial_id: trial.values for trial in supply.spec.trials})
        return known[trial_id]

    return flat_of


def _check_resources(spec: SweepSpec, address: str | None) -> None:
    """Whether one stack fits on some node."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((int(node.get("CPU", 0)) for node in nodes), default=0)
    where = "this machine has" if address is None else "no node of the cluster has more than"
    if spec.launch.cpus > most:
        raise UserError(f"launch.cpus: {spec.launch.cpus} per stack, but {where} {most} cores")
    if spec.launch.gpus > max((node.get("GPU", 0) for node in nodes), default=0):
        raise UserError(f"launch.gpus: {spec.launch.gpus} per stack, but Ray finds no such GPU here")


class _Rounds:
    """Rounds of Tune: what is free first; then what others held and have left."""

    def __init__(
        self,
        supply: JobQueue,
        settings: Settings,
        folder: str,
        progress: Progress,
        interruption: Interruption,
        offline: OfflineWriter | None,
        registration: LaunchLease,
    ) -> None:
        self._supply = supply
        self._settings = settings
        self._folder = folder
        self._progress = progress
        self._interruption = interruption
        self._watcher = Watcher(progress, interruption, offline)
        self._registration = registration

    def run(self) -> None:
        """Until nothing is left, or the work is to end."""
        before: object = None
        unchanged = 0
        errors: Sequence[Exception] = []
        while not self._interruption.is_over:
            states = self._supply.states()
            self._progress.grow(self._supply.spec)
            self._progress.refresh(states)
            made = self._supply.begin(states)
            held = [state for state in states.values() if state.state == "running"]
            if self._supply.has_more(made):
                stands = {trial_id: (state.state, state.width, state.epoch) for trial_id, state in states.items()}
                unchanged = unchanged + 1 if before == stands else 0
                if any(map(is_memory, errors)):
                    self._wait_for_memory(unchanged, errors)
                elif unchanged >= FRUITLESS_ROUNDS:  # another one would change nothing either
                    if errors:
                        raise UserError(first_error(errors))
                    return
                before = stands
                errors = self._fit()
            elif held and not self._supply.target_reached:
                holders = ", ".join(sorted({state.holder for state in held}))
                self._progress.note(f"waiting for {len(held)} trials that {holders} runs")
                time.sleep(WAIT_SECONDS)
            else:
                return

    def _wait_for_memory(self, fruitless: int, errors: Sequence[Exception]) -> None:
        """A worker that Ray ends for want of memory is preempted: its stack goes on when there may be some.

        Raises `UserError` where several rounds in a row have come to nothing.
        """
        cause = cause_of(next(filter(is_memory, errors)))
        if fruitless >= len(MEMORY_SECONDS):
            raise UserError(
                f"{cause}, and Ray ends every worker there: free some, or lower launch.concurrency or launch.stack; "
                f"{RESUME}"
            )
        deadline = time.monotonic() + MEMORY_SECONDS[fruitless]
        while time.monotonic() < deadline and not self._interruption.is_over:
            self._progress.note(f"waiting: {cause}")
            time.sleep(WAIT_SECONDS)

    def _next_job(self) -> dict[str, Any] | None:
        """The next job as the config of a Tune trial."""
        if self._interruption.is_over:
            return None
        found = self._supply.next()
        if found is None:
            return None
        stacks, states = found
        if self._supply.spec.method == "bayes":
            self._progress.grow(self._supply.spec)
        return {"jobs": [self._job(stack, states) for stack in stacks]}

    def _job(self, stack: StackPlan, states: Mapping[str, TrialState]) -> dict[str, Any]:
        spec = self._supply.spec
        return asdict(
            Job(
                store=self._settings.store.root,
                configs=tuple(trial.config.canonical() for trial in stack.trials),
                width=stack.width,
                epoch=stack.epoch,
                sweeps=(spec.name,),
                launch=self._registration.id,
                over={trial.trial_id: states[trial.trial_id].generation for trial in stack.trials},
                device=spec.launch.device,
                data=self._settings.data,
                threads=spec.launch.cpus,
                checkpoint_seconds=spec.launch.checkpoint_seconds,
                keep=spec.launch.keep,
                metric=spec.metric.name,
                goal=spec.metric.goal,
                stop_file=self._registration.stop_file,
                max_failures=spec.launch.max_failures,
                early=spec.early_terminate is not None,
                patience=self._settings.patience,
            )
        )

    def _update(self, rows: list[RowProgress]) -> list[str]:
        ended = self._supply.update(rows)
        last = {row.trial_id: row for row in rows}
        self._progress.update([RowProgress(t, last[t].epoch, "stopped", {}) for t in ended if t in last])
        return ended

    def _fit(self) -> Sequence[Exception]:
        """One Tune experiment; returns when all its jobs have ended or an interruption came.

        Returns the errors of jobs that failed again and again for reasons that are not the trials' own.
        """
        wanted = self._supply.spec.launch
        tuner = tune.Tuner(
            tune.with_resources(StackTrainable, {"cpu": wanted.cpus, "gpu": wanted.gpus}),
            param_space={
                "online": self._settings.wandb == "online",
                "path": import_paths(),
                "version": THIS_VERSION,
            },
            tune_config=tune.TuneConfig(
                reuse_actors=True,
                num_samples=-1,
                search_alg=JobSearcher(self._next_job),
                scheduler=Pruner(self._update),
                max_concurrent_trials=wanted.concurrency or (self._slots() if self._supply.spec.by_points else None),
            ),
            run_config=tune.RunConfig(
                storage_path=self._folder,
                stop=self._watcher,
                callbacks=[self._watcher],
                verbose=1 if self._settings.verbose else 0,
                failure_config=tune.FailureConfig(max_failures=INFRASTRUCTURE_RETRIES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        try:
            # Tune has a text where it cannot unpickle what a worker raised.
            return [e if isinstance(e, Exception) else RuntimeError(e) for e in tuner.fit().errors]
        except Exception as error:  # Tune does not expect this one; actors that it has lost end by themselves
            if not is_memory(error):
                raise
            return [error.with_traceback(None)]

    def _slots(self) -> int:
        """Stacks that there is room for."""
        resources, wanted = ray.cluster_resources(), self._supply.spec.launch
        slots = int(resources.get("CPU", 1)) // wanted.cpus
        return max(1, min(slots, int(resources.get("GPU", 0) / wanted.gpus)) if wanted.gpus else slots)


@contextmanager
def _ray(settings: Settings, interruption: Interruption) -> Iterator[str]:
    """Ray, of this process's own or a cluster's; yields a folder for Tune that goes with it."""
    level = logging.INFO if settings.verbose else logging.CRITICAL
    logging.getLogger("ray").setLevel(level)
    options: dict[str, Any] = {"log_to_driver": settings.verbose, "logging_level": level}
    folder = tempfile.mkdtemp(prefix="polysweep-")
    try:
        if settings.address is None:
            with local_ray(folder, options, interruption.give_up):
                yield folder
        else:
            if not ray.is_initialized():
                ray.init(**options)
            with watched_cluster(settings.is_alive, interruption.give_up):
                yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
