"""How a launch ended, and why."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from polysweep.sweeps.scheduling.driver import _flat_of, _result, check_resources
from polysweep.sweeps.scheduling.job_queue import JobQueue
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from tests.support.made_sweeps import spec_of
from tests.support.made_trials import fake

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("outcome", "target", "code", "reason"),
    [
        ("finished", None, 0, ""), ("diverged", None, 0, ""), ("failed", None, 1, ""), ("running", None, 1, ""),
        ("running", 0.5, 0, "test/top1 has reached its target 0.5; 2 trials are not started"),
        ("failed", 0.5, 1, "test/top1 has reached its target 0.5; 0 trials are not started"),
        ("finished", 0.6, 0, ""),
    ],
)  # fmt: skip
def test_a_launch_ends_with_1_if_a_trial_has_failed_or_is_left_without_a_reason(
    spec_file: Callable[..., Path], tmp_path: Path, outcome: str, target: float | None, code: int, reason: str
) -> None:
    small: dict[str, Any] = {"variants": [{"scheduler": {"value": "polyak"}}], "tuned": [], "seeds": 1}
    spec = SweepSpec.load(spec_file(metric={"name": "test/top1", "goal": "maximize", "target": target}, **small))
    store = Store(str(tmp_path / "store"))
    fake(store, spec, outcome)
    queue = JobQueue(spec, store, "")
    queue.begin(queue.states())
    result = _result(queue)
    assert (result.exit_code, result.reason, len(result.states)) == (code, reason, 2)
    first = spec.trials[0]
    assert _flat_of(queue)(first.trial_id) == first.config.flat()


@pytest.mark.parametrize(
    ("gpus", "nodes", "reason"),
    [
        (1, [{"CPU": 2.0}], "launch.gpus: 1.0 per stack, but no node has a GPU"),
        (2, [{"CPU": 2.0, "GPU": 1.0}], "launch.gpus: 2.0 per stack, but no node has more than 1"),
        (0.5, [{"CPU": 2.0, "GPU": 0.25}, {"CPU": 8.0}], "launch.gpus: 0.5 per stack, but no node has more than 0.25"),
        (0.5, [{"CPU": 2.0, "GPU": 1.0}], ""),
    ],
)
def test_gpus_that_no_node_has_are_refused_before_a_trial_starts(
    gpus: float, nodes: list[dict[str, float]], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the nodes of a cluster have, as Ray counts it."""
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": node} for node in nodes])
    launch = spec_of(launch={"gpus": gpus}).launch
    if not reason:
        check_resources(launch.resources, launch.gpus, is_local=False)
        return
    with pytest.raises(UserError) as refused:
        check_resources(launch.resources, launch.gpus, is_local=False)
    assert str(refused.value) == reason
