"""Rounds of Tune: what a round hands out, and when there is to be no further one. None of these starts Ray."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune
from ray.exceptions import OutOfMemoryError
from ray.tune.execution.tune_controller import _get_max_pending_trials
from ray.tune.search.search_generator import SearchGenerator
from rich.console import Console

from polysweep.sweeps.job import Job, LaunchOptions
from polysweep.sweeps.scheduling.job_queue import JobQueue
from polysweep.sweeps.scheduling.progress import Progress
from polysweep.sweeps.scheduling.rounds import MEMORY_SECONDS, Rounds
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.launches import LaunchLease
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.signals import Interruption
from polysweep.trainer.errors import UserError
from tests.support.made_trials import fake

SMALL: dict[str, Any] = {
    "variants": [{"scheduler": {"value": "polyak"}}], "tuned": [], "seeds": 1, "launch": {"stack": 2},
}  # fmt: skip


@pytest.fixture
def rounds(spec_file: Callable[..., Path], tmp_path: Path) -> Rounds:
    """Of a sweep with two trials in one stack."""
    spec, store = SweepSpec.load(spec_file(**SMALL)), Store(str(tmp_path / "store"))
    queue = JobQueue(spec, store, "data")
    progress = Progress(spec, {}, Console(file=io.StringIO()))
    lease = LaunchLease(store, spec.name, lambda: None, lambda _: None, "0a")
    return Rounds(queue, store, LaunchOptions("disabled"), str(tmp_path), progress, Interruption(), None, lease)


def test_a_round_hands_out_each_job_once_and_none_after_a_signal(rounds: Rounds) -> None:
    rounds._queue.begin(rounds._queue.states())
    handed = rounds._next_job()
    assert handed is not None
    (job,) = (Job(**values) for values in handed["jobs"])
    assert (job.width, len(job.configs), job.launch, job.stop_file) == (2, 2, "0a", "sweeps/small/stop-0a")
    assert rounds._next_job() is None
    rounds._queue.begin(rounds._queue.states())
    rounds._interruption.request(signal.SIGTERM)
    assert rounds._next_job() is None, "there would be a job, and the launch is to end"


def test_a_sweep_without_anything_left_needs_no_round(rounds: Rounds) -> None:
    fake(rounds._store, rounds._queue.spec)
    rounds.run()
    assert rounds._progress.done == 2


def test_rounds_that_change_nothing_end_with_the_error_of_their_jobs(rounds: Rounds) -> None:
    states = rounds._queue.states()
    assert [rounds._is_worth_a_round(states) for _ in range(3)] == [True, True, False]
    rounds._errors = [RuntimeError("no such library"), RuntimeError("another")]
    with pytest.raises(UserError, match=r"^2 stacks could not be run: no such library$"):
        rounds._is_worth_a_round(states)
    fake(rounds._store, rounds._queue.spec, outcome="running", epochs=1)
    assert rounds._is_worth_a_round(rounds._queue.states()), "an epoch more is a change"
    rounds._errors, rounds._fruitless = [OutOfMemoryError("used 5GB used / 6GB limit")], len(MEMORY_SECONDS)
    with pytest.raises(UserError, match=r"and Ray ends every worker there: free some, or lower launch\.concurrency"):
        rounds._is_worth_a_round(rounds._queue.states())


@pytest.mark.parametrize(("target", "most"), [(None, 64), (0.9, 1)])
def test_many_workers_start_at_once_unless_a_target_may_end_the_sweep(
    target: float | None, most: int, spec_file: Callable[..., Path], rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what Tune itself makes of it: how many jobs it keeps waiting for a worker."""
    metric = {"name": "test/top1", "goal": "maximize"} | ({} if target is None else {"target": target})
    rounds._queue._adopt(SweepSpec.load(spec_file("other.yaml", **SMALL, metric=metric)))
    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", "auto")
    monkeypatch.setattr(rounds, "_slots", lambda: 1000)
    waiting: list[int] = []
    settings: dict[str, Any] = {}

    class Tuner:
        def __init__(self, *_: Any, param_space: dict[str, Any], tune_config: Any, **__: Any) -> None:
            settings.update(param_space)
            waiting.append(_get_max_pending_trials(SearchGenerator(tune_config.search_alg)))

        def fit(self) -> Any:
            return SimpleNamespace(errors=[])

    monkeypatch.setattr(tune, "Tuner", Tuner)
    rounds._fit()
    assert waiting == [most]
    assert settings["report_seconds"] == 10.0, "100 reports a second of all 1,000 together"
