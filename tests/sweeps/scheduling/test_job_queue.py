"""Points and decisions of a search, as a launch makes them, and what it reads while it waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.job import Calibration, CalibrationJob, RowProgress
from polysweep.sweeps.scheduling import curves
from polysweep.sweeps.scheduling import job_queue as decisions
from polysweep.sweeps.scheduling.job_queue import WAIT, JobQueue
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.files import Files
from polysweep.sweeps.store.store import Store
from tests.support.claimed import RECORD

SpecFile = Callable[..., Path]


def test_decisions_about_points_are_kept_before_they_are_acted_on(tmp_path: Path, spec_file: SpecFile) -> None:
    """Of two launches of one bayes sweep each makes proposals of its own, and a decision at a rung is made once."""
    spec = SweepSpec.load(
        spec_file(method="bayes", metric={"name": "test/top1", "goal": "maximize"}, run_cap=8,
                  early_terminate={"type": "hyperband", "min_iter": 1})
    )  # fmt: skip
    supplies = []
    for _ in range(2):
        supply = decisions.JobQueue(spec, Store(str(tmp_path / "store")), "")
        supply.begin(supply.states())
        supplies.append(supply)
    handed = [supply.next() for supply in (*supplies, *supplies)]
    ids = [{t.trial_id for stack in found[0] for t in stack.trials} for found in handed if found]
    assert len(ids) == 4 and len(set.union(*ids)) == 8
    assert len(Store(str(tmp_path / "store")).search.suggestions("small")) == 4
    assert supplies[0].next() is None, "four points of two seeds are all that run_cap allows"


@pytest.mark.parametrize(("strict", "is_stopped"), [({}, True), ({"strict": True}, True), ({"strict": False}, False)])
def test_hyperband_goes_by_the_value_at_the_rung_or_if_it_is_not_strict_by_the_best_so_far(
    tmp_path: Path, spec_file: SpecFile, strict: dict[str, bool], is_stopped: bool
) -> None:
    early = {"type": "hyperband", "min_iter": 2, "eta": 2, **strict}
    metric = {"name": "test/top1", "goal": "maximize"}
    spec = SweepSpec.load(spec_file(seeds=1, metric=metric, early_terminate=early))
    queue = JobQueue(spec, Store(str(tmp_path / "store")), "")
    queue.begin(queue.states())
    stopped = []
    for trial, values in zip(spec.trials, ((0.2, 0.5), (0.3, 0.6), (0.9, 0.1)), strict=False):
        for epoch, value in enumerate(values, 1):
            stopped += queue.update([RowProgress(trial.trial_id, epoch, "running", {"test/top1": value})])
    assert stopped == [spec.trials[2].trial_id] * is_stopped


def test_a_rung_costs_one_mean_and_no_read_however_many_points_there_are(
    tmp_path: Path, spec_file: SpecFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the curve of the judged point has changed; of the trials, none is run by another launch."""
    metric, early = {"name": "test/top1", "goal": "maximize"}, {"type": "hyperband", "min_iter": 1}
    spec = SweepSpec.load(spec_file(seeds=list(range(40)), tuned=[], metric=metric, early_terminate=early))
    points = [[trial for trial in spec.trials if trial.point == point] for point in {t.point: 0 for t in spec.trials}]
    assert len(points) == 6
    queue = JobQueue(spec, Store(str(tmp_path / "store")), "")
    queue.begin(queue.states())
    means, reads = list[int](), list[str]()
    mean_curve = curves.mean_curve
    monkeypatch.setattr(curves, "mean_curve", lambda of: means.append(len(of)) or mean_curve(of))
    monkeypatch.setattr(queue._store, "history", lambda trial_id: reads.append(trial_id) or [])
    for number, members in enumerate(points):
        means.clear()
        queue.update([RowProgress(trial.trial_id, 1, "running", {"test/top1": number / 10}) for trial in members])
        assert means == [40] * (6 if number == 0 else 1)
    assert not reads


def test_a_waiting_launch_reads_only_what_can_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    values = {"task": "digits", "model": "mlp", "optimizer": "usam", "scheduler": "polyak", "epochs": 2}
    spec = SweepSpec.parse(json.dumps({"parameters": {k: {"value": v} for k, v in values.items()} | {
        "rho": {"values": [0.1, 0.2, 0.3, 0.4]}}}), "x.yaml")  # fmt: skip
    store.write_sweep(spec)
    *ended, going = [trial.trial_id for trial in spec.trials]
    for trial_id in ended:
        store.write_record(trial_id, {"outcome": "finished", "width": 1, "epoch": 2})
    claim = store.claim(going)
    assert claim is not None
    store.write_record(going, {**RECORD, "claim": 1}, claim.fence)
    supply = JobQueue(spec, Store(str(tmp_path)), "")
    assert [state.state for state in supply.states().values()] == ["finished"] * 3 + ["running"]
    touched: list[str] = []
    for name in ("_read", "_names"):
        real = getattr(type(store.files), name)

        def noted(self: Files, path: str, real: Any = real) -> Any:
            touched.append(path.removeprefix(f"{tmp_path}/"))
            return real(self, path)

        monkeypatch.setattr(type(store.files), name, noted)
    assert [state.state for state in supply.states().values()] == ["finished"] * 3 + ["running"]
    lease = f"leases/{claim.lease.id}.json"
    assert sorted(touched) == sorted(
        [f"trials/{going}/record.json", f"trials/{going}/claim-1.json", lease, f"sweeps/{spec.name}/ended"]
    )


def small_queue(tmp_path: Path, spec_file: SpecFile, **changes: Any) -> JobQueue:
    queue = JobQueue(SweepSpec.load(spec_file(**changes)), Store(str(tmp_path / "store")), "")
    queue.begin(queue.states())
    return queue


def test_a_signature_is_measured_before_its_stacks_are_handed_out(tmp_path: Path, spec_file: SpecFile) -> None:
    queue = small_queue(tmp_path, spec_file, launch={"stack": "auto"})
    measurement = queue.next()
    assert isinstance(measurement, CalibrationJob) and measurement.width is None
    assert queue.next() == WAIT
    curve = [{"width": 4, "seconds": 0.1, "memory": 0}]
    calibration = Calibration("this", measurement.name, 4, None, curve, {}, 0, 1.0, 0.0)
    queue.measured(measurement.name, calibration)
    handed = [job for job in iter(queue.next, None) if isinstance(job, tuple)]
    stacks = [stack for (stacks, _) in handed for stack in stacks]
    assert {stack.width for stack in stacks} == {4}
    assert {t.trial_id for stack in stacks for t in stack.trials} == {t.trial_id for t in queue.spec.trials}
    assert not queue.begin(queue.states()).to_measure, "it is measured once in a launch"


def test_a_measurement_whose_worker_is_lost_is_made_again_and_then_done_without(
    tmp_path: Path, spec_file: SpecFile, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = small_queue(tmp_path, spec_file, launch={"stack": "auto"})
    for _ in range(2):
        measurement = queue.next()
        assert isinstance(measurement, CalibrationJob) and queue.next() == WAIT
        queue.measured(measurement.name, None, "its workers were lost")
    job = queue.next()
    assert isinstance(job, tuple) and job[0][0].width == 1
    assert "K = 1, because it could not be measured (its workers were lost)" in capsys.readouterr().err


def test_a_round_that_ends_before_its_measurement_measures_again(tmp_path: Path, spec_file: SpecFile) -> None:
    queue = small_queue(tmp_path, spec_file, launch={"stack": "auto"})
    first = queue.next()
    queue.begin(queue.states())
    assert isinstance(first, CalibrationJob) and queue.next() == first
