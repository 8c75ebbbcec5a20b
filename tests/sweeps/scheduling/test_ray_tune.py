"""What Ray Tune calls: the worker's results, and what the driver does with them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from polysweep.sweeps.job import CalibrationJob, RowProgress
from polysweep.sweeps.scheduling import ray_tune as module
from polysweep.sweeps.scheduling.job_queue import WAIT
from polysweep.sweeps.scheduling.ray_tune import JobSearcher, Pruner, StackTrainable, Watcher, report_seconds
from polysweep.sweeps.store.files import OutOfReachError
from polysweep.sweeps.worker.signals import Interruption


def test_a_worker_that_has_waited_for_its_store_says_so_and_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        is_over = in_turn = False

        def advance(self) -> None:
            raise OutOfReachError("store/x: cannot be written: No space left on device")

    worker = StackTrainable.__new__(StackTrainable)
    worker._run, worker._interruption = Full(), Interruption()  # type: ignore[assignment]
    result = worker.step()
    assert result["done"] and result["rows"] == []
    interruption = Interruption()
    quiet = type("Quiet", (), {"update": lambda *_: None, "tick": lambda *_: None})()
    watcher = Watcher(quiet, interruption, None)
    assert not watcher("trial", result)
    assert watcher.stop_all() and interruption.lost.startswith("store/x: cannot be written: No space left on device; ")


def test_tune_gets_the_jobs_in_order_and_is_told_when_there_is_none() -> None:
    jobs: list[dict[str, Any]] = [{"jobs": [1]}, {"jobs": [2]}]
    searcher = JobSearcher(lambda: jobs.pop(0) if jobs else None)
    assert [searcher.suggest(str(number)) for number in range(3)] == [{"jobs": [1]}, {"jobs": [2]}, Searcher.FINISHED]
    assert searcher.__getstate__() == {}, "nothing of the launch is pickled"


def test_a_job_is_stopped_by_tune_once_its_point_has_been_ended() -> None:
    seen: list[RowProgress] = []

    def update(rows: list[RowProgress]) -> list[str]:
        seen.extend(rows)
        return [row.trial_id for row in rows if row.epoch == 3]

    pruner = Pruner(update)
    rows = [RowProgress("a", epoch, "running", {"test/top1": 0.5}) for epoch in (2, 3)]
    answers = [pruner.on_trial_result(None, None, {"rows": [vars(row)]}) for row in rows]  # type: ignore[arg-type]
    assert answers == [TrialScheduler.CONTINUE, TrialScheduler.STOP] and seen == rows


@pytest.mark.parametrize(("in_turn", "reports"), [(False, [3, 3, 1]), (True, [1] * 7)])
def test_a_worker_reports_epochs_together_if_many_report_and_nothing_is_decided_by_them(
    in_turn: bool, reports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 300 workers each reports every 3 s, and at once when its job is over; of a few workers every 0.2 s."""
    assert [report_seconds(workers) for workers in (1, 20, 300, 1000)] == [0.2, 0.2, 3.0, 10.0]

    class SevenEpochs:
        """Of a second each."""

        def __init__(self) -> None:
            self.epoch, self.is_over, self.in_turn = 0, False, in_turn

        def advance(self) -> list[RowProgress]:
            self.epoch += 1
            self.is_over = self.epoch == 7
            return [RowProgress("a", self.epoch, "running", {})]

    run = SevenEpochs()
    worker = StackTrainable.__new__(StackTrainable)
    worker._run, worker._interruption = run, Interruption()  # type: ignore[assignment]
    worker._report_seconds = report_seconds(300)
    monkeypatch.setattr(module.time, "monotonic", lambda: float(run.epoch))
    answers = []
    while not run.is_over:
        answers.append(worker.step())
    assert [len(answer["rows"]) for answer in answers] == reports
    assert [answer["done"] for answer in answers] == [False] * (len(reports) - 1) + [True]


def test_a_measurement_whose_workers_are_all_lost_is_named() -> None:
    measurement = asdict(CalibrationJob("store", "0a1b2c3d", {}, None, False))
    jobs: list[Any] = [{"jobs": [], "measurement": measurement}, {"jobs": [1], "measurement": None}, WAIT]
    lost: list[str] = []
    searcher = JobSearcher(lambda: jobs.pop(0), lost.append)
    assert [bool(searcher.suggest(name)) for name in ("a", "b", "c")] == [True, True, False]
    for name in ("b", "a"):
        searcher.on_trial_complete(name, error=True)
    assert lost == ["0a1b2c3d"]
