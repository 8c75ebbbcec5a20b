"""One launch: Ray, the lease of the launch, offline W&B runs and rounds of Tune, from the first to the last.

One Tune trial is one job of a `JobQueue`: a class Trainable in a reused actor, one epoch a step. Tune's own checkpoints
and identities are not used: what a trial is and where it stands is in the Store.
"""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from polysweep.sweeps.job import LaunchOptions
from polysweep.sweeps.scheduling.job_queue import JobQueue
from polysweep.sweeps.scheduling.local_ray import local_ray, watched_cluster
from polysweep.sweeps.scheduling.progress import Progress
from polysweep.sweeps.scheduling.ray_errors import RESUME, one_line_errors
from polysweep.sweeps.scheduling.rounds import Rounds
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import Resources
from polysweep.sweeps.store.launches import LaunchLease
from polysweep.sweeps.store.states import FINAL, State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import OfflineWriter
from polysweep.sweeps.worker.signals import EXIT_SECONDS, GRACE_SECONDS, Interruption
from polysweep.trainer.device import missing_cuda
from polysweep.trainer.errors import UserError


@dataclass(frozen=True)
class LaunchResult:
    """How a launch ended: the sweep with all its points, the trials' states, the exit code, and why it ended early."""

    spec: SweepSpec
    states: Mapping[str, TrialState]
    exit_code: int
    reason: str = ""


def launch(
    spec: SweepSpec,
    store: Store,
    options: LaunchOptions,
    data: str,
    *,
    is_alive: Callable[[], bool] = lambda: True,
    check: Callable[[], None] = lambda: None,
) -> LaunchResult:
    """Run every trial of `spec` that is new or interrupted, and wait for those that another launch runs.

    `data` is the folder of the data sets; `is_alive` tells whether the cluster answers; `check` is called once Ray is
    up. Raises `UserError` if no machine has what a stack asks for.
    """
    interruption = Interruption.of_process()
    with (
        LaunchLease(
            store,
            spec.name,
            on_stop=lambda: interruption.request(signal.SIGTERM),
            on_lost=lambda reason: interruption.give_up(f"{reason}; {RESUME}"),
            launch_id=options.launch_id,
        ) as lease,
        interruption.in_order(lease.ask_to_stop, EXIT_SECONDS),
    ):
        with (
            one_line_errors(),
            started_ray(options.address, is_alive, interruption, verbose=options.verbose) as folder,
        ):
            interruption.install()  # ray.init has replaced a handler
            interruption.grace = GRACE_SECONDS  # from here on there is something to save
            check()
            check_resources(spec.launch.resources, spec.launch.gpus, is_local=options.address is None)
            queue = JobQueue(spec, store, data)
            if options.address is None:  # the workers of a cluster look themselves
                queue.widths.store = store
            offline = OfflineWriter(store, _flat_of(queue), (spec.name,)) if options.wandb == "offline" else None
            try:
                with Progress(queue.spec, queue.states()) as progress:
                    Rounds(queue, store, options, folder, progress, interruption, offline, lease).run()
            finally:
                if offline:
                    offline.close(wait=not interruption.is_over)
        if interruption.lost and not interruption.signal:
            raise UserError(interruption.lost)
    if interruption.signal:
        return LaunchResult(queue.spec, queue.states(), interruption.exit_code)
    return _result(queue)


def _result(queue: JobQueue) -> LaunchResult:
    """How a launch ended that was not interrupted."""
    states, metric = queue.states(), queue.spec.metric
    left = sum(state.state not in FINAL for state in states.values())
    has_failed = any(state.state == State.FAILED for state in states.values())
    if queue.target_reached:
        reason = f"{metric.name} has reached its target {metric.target}; {left} trials are not started"
        return LaunchResult(queue.spec, states, int(has_failed), reason)
    reason = "bayes finds no point that has not been tried; the sweep is complete" if queue.exhausted else ""
    return LaunchResult(queue.spec, states, int(has_failed or left > 0), reason)


def _flat_of(queue: JobQueue) -> Callable[[str], Mapping[str, Any]]:
    """Looks up a trial's flat config, also of one that was proposed meanwhile."""
    flat_configs: dict[str, Mapping[str, Any]] = {}

    def flat_of(trial_id: str) -> Mapping[str, Any]:
        if trial_id not in flat_configs:
            flat_configs.update({trial.trial_id: trial.values for trial in queue.spec.trials})
        return flat_configs[trial_id]

    return flat_of


def check_resources(resources: Resources, asked_gpus: object, *, is_local: bool) -> None:
    """Raise `UserError` if no node has what one stack needs. The nodes of a cluster have been asked about CUDA."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most = max((int(node.get("CPU", 0)) for node in nodes), default=0)
    if resources.cpus > most:
        raise UserError(f"launch.cpus: {resources.cpus} per stack, but no node has more than {most} cores")
    gpus = max((node.get("GPU", 0) for node in nodes), default=0)
    reason = missing_cuda() if is_local and resources.gpus else ""
    if reason or resources.gpus > gpus:
        what = f"no node has more than {gpus:g}" if gpus else "no node has a GPU"
        what = f"torch can use none here: {reason}" if reason else what
        raise UserError(f"launch.gpus: {asked_gpus} per stack, but {what}")


@contextmanager
def started_ray(
    address: str | None, is_alive: Callable[[], bool], interruption: Interruption, *, verbose: bool
) -> Iterator[str]:
    """Ray, of this process's own or a cluster's; yields a folder for Tune that is removed with it."""
    level = logging.INFO if verbose else logging.CRITICAL
    logging.getLogger("ray").setLevel(level)
    ray_options: dict[str, Any] = {"log_to_driver": verbose, "logging_level": level}
    folder = tempfile.mkdtemp(prefix="polysweep-")
    try:
        if address is None:
            with local_ray(folder, ray_options, interruption.give_up):
                yield folder
        else:
            if not ray.is_initialized():
                ray.init(**ray_options)
            with watched_cluster(is_alive, interruption.give_up):
                yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
