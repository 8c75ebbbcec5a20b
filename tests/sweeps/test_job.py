"""What travels between a driver and its workers is plain data, and the same after the journey."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path

import pytest

from polysweep.sweeps.job import Job, LaunchOptions, RowProgress
from polysweep.sweeps.scheduling.job_queue import JobQueue
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store


def test_a_job_of_a_sweep_is_the_same_after_it_has_travelled_as_json(
    spec_file: Callable[..., Path], tmp_path: Path
) -> None:
    spec = SweepSpec.load(spec_file(launch={"stack": 4, "keep": "best", "max_failures": 1}))
    queue = JobQueue(spec, Store(str(tmp_path)), "data")
    queue.begin(queue.states())
    handed = queue.next()
    assert handed is not None
    (stack,), states = handed
    job = queue.job(stack, states, "0a", "sweeps/small/stop-0a")
    assert (job.width, job.keep, job.max_failures, job.sweeps, job.data) == (4, "best", 1, ("small",), "data")
    arrived = json.loads(json.dumps(asdict(job)))
    assert Job(**{**arrived, "configs": tuple(arrived["configs"]), "sweeps": tuple(arrived["sweeps"])}) == job
    with pytest.raises(FrozenInstanceError):
        job.width = 1  # type: ignore[misc]


def test_options_and_progress_are_the_same_after_they_have_travelled() -> None:
    options = LaunchOptions("offline", extend=True, address="auto", launch_id="0a")
    assert LaunchOptions(**json.loads(json.dumps(vars(options)))) == options
    row = RowProgress("t", 3, "running", {"test/top1": 0.5, "val/top1": None})
    assert RowProgress(**json.loads(json.dumps(vars(row)))) == row
