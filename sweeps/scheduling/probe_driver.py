"""Runs the jobs of a probe as Ray tasks: what has been measured is kept, whatever becomes of the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

import ray

from polysweep.sweeps.console import bar
from polysweep.sweeps.job import ProbeJob
from polysweep.sweeps.scheduling.driver import check_resources, started_ray
from polysweep.sweeps.scheduling.ray_errors import RESUME, cause_of, one_line_errors
from polysweep.sweeps.spec.sweep import Resources
from polysweep.sweeps.store.provenance import THIS_VERSION, version_refusal
from polysweep.sweeps.worker.probe_run import measure
from polysweep.sweeps.worker.signals import EXIT_SECONDS, Interruption
from polysweep.trainer.components.registry import import_paths, working_folder
from polysweep.trainer.errors import UserError

RETRIES: Final = 3
"""How often a job is started again whose worker or node has died."""
POLL_SECONDS: Final = 0.2


def run_jobs(
    jobs: Sequence[ProbeJob],
    resources: Resources,
    *,
    address: str | None = None,
    verbose: bool = False,
) -> tuple[int, Sequence[str]]:
    """Run the jobs; returns how many trials were measured, and what went wrong with the jobs that failed.

    Exits with 128 + its number after a signal. Raises `UserError` if Ray cannot be started, or is lost.
    """
    interruption = Interruption.of_process()
    measured, errors = 0, list[str]()
    with (
        interruption.in_order(seconds=EXIT_SECONDS),
        one_line_errors(),
        started_ray(address, lambda: True, interruption, verbose=verbose),
    ):
        interruption.install()  # ray.init has replaced a handler
        check_resources(resources, f"{resources.gpus:g}", is_local=address is None)
        task = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=RETRIES)(_measure)
        worker = {
            "folder": working_folder(),
            "path": import_paths() if address else [folder for folder in sys.path if folder],
            "version": THIS_VERSION,
        }
        running = {task.remote(asdict(job), worker): job for job in jobs}
        total = sum(len(job.trials) for job in jobs)
        with bar("measuring") as show:
            while running and not interruption.is_over:
                ended, _ = ray.wait(list(running), timeout=POLL_SECONDS)
                for one in ended:
                    job = running.pop(one)
                    try:
                        count, problems = ray.get(one)
                        measured += count
                        errors += problems
                    except Exception as error:  # of a trial, of a user's own part, or Ray's of a lost worker
                        errors.append(f"{' '.join(job.trials)} could not be measured: {cause_of(error)}")
                    show(measured, total)
    if interruption.signal:
        interruption.exit()
    if interruption.lost:
        raise UserError(f"{interruption.lost}; {RESUME}")
    return measured, errors


def _measure(job: Mapping[str, Any], worker: Mapping[str, Any]) -> tuple[int, list[str]]:
    """What runs on a worker."""
    if refusal := version_refusal(worker["version"]):
        raise RuntimeError(refusal)
    with suppress(OSError):  # another node may not have it
        os.chdir(worker["folder"])
    sys.path += [folder for folder in worker["path"] if folder not in sys.path]
    return measure(ProbeJob(**job))
