"""K as the spec fixes it, as it was measured, and as it will be."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.job import Calibration
from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.planning.widths import CONVEX_STACK, Widths, fitted
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.states import TrialState
from polysweep.sweeps.store.store import Store
from polysweep.trainer.device import kind_of_device
from tests.support.specs import GOOD, parse

CONVEX = """\
name: convex
parameters:
  task: {value: ridge}
  model: {value: linear}
  optimizer: {value: usam}
  scheduler: {value: polyak-deterministic}
  rho: {values: [0.1, 0.2]}
  epochs: {value: 2}
  batch_size: {value: 10}
metric: {name: suboptimality/relative, goal: minimize}
"""
CURVE = [{"width": 1, "seconds": 0.01, "memory": 0}, {"width": 4, "seconds": 0.005, "memory": 0}]


def test_k_is_chosen_for_the_share_of_the_device() -> None:
    """One curve serves every share: an eighth of a GPU has an eighth of its memory."""
    widths = [{"width": n, "seconds": 1 / n, "memory": 10 * n} for n in (1, 2, 4, 8, 16)]
    chosen = {}
    for gpus in (1, 0.5, 0.125):
        spec = parse(GOOD.replace("seeds: 3", "seeds: 1") + f"launch: {{gpus: {gpus}}}\n")
        (trial, *_) = spec.trials
        name = Widths(spec).measurement(trial, "").name
        measured = {name: Calibration("", name, 16, None, widths, {}, 240, 1.0, 0.0)}
        chosen[gpus] = Widths(spec, measured=measured).width(trial)
    assert chosen == {1: 16, 0.5: 8, 0.125: 2}


def test_seeds_fill_stacks_only_within_the_memory() -> None:
    assert fitted(8, 3, lambda width: width <= 8) == 6


def measured(spec: SweepSpec, width: int, share: float | None = None) -> dict[str, Calibration | None]:
    """As if every signature of the sweep had been measured."""
    jobs = [Widths(spec).measurement(trial, "") for trial in spec.trials]
    kind = kind_of_device("cpu", 1)
    curve = [*CURVE, {"width": width, "seconds": 0.001, "memory": 0}]
    return {job.name: Calibration(kind, job.name, width, share, curve, {}, 1, 1.0, 0.0) for job in jobs}


@pytest.mark.parametrize(
    ("width", "seeds", "fits"),
    [(8, 1, 8), (8, 2, 8), (8, 3, 9), (8, 4, 8), (8, 5, 10), (8, 7, 7), (8, 10, 10), (8, 20, 10), (8, 17, 8), (1, 3, 1),
     (2, 3, 2), (4, 3, 3), (64, 3, 63), (64, 5, 65)],
)  # fmt: skip
def test_seeds_fill_whole_stacks_if_a_width_nearby_allows_it(width: int, seeds: int, fits: int) -> None:
    assert fitted(width, seeds) == fits


def test_a_plan_says_that_k_will_be_measured_and_then_what_was(tmp_path: Path) -> None:
    spec = parse(GOOD)
    before = plan(spec, {})
    assert len(before.to_measure) == 1 and before.planned_widths == {} and before.measured_stacks == []
    (line,) = before.widths.lines(spec.trials)
    assert line.endswith(" on digits: K will be measured by the first worker")
    after = plan(spec, {}, widths=Widths(spec, measured=measured(spec, 8)))
    assert after.to_measure == [] and {stack.width for stack in after.stacks} == {9}
    (line,) = after.widths.lines(spec.trials)
    assert f"K = 9, measured on {kind_of_device('cpu', 1)} (a step of a row: 10 ms at 1, 5 ms at 4, 1 ms at 8)" in line


def test_what_the_store_has_of_this_machine_is_known(tmp_path: Path) -> None:
    spec, store = parse(GOOD), Store(str(tmp_path))
    (trial, *_) = spec.trials
    assert not Widths(spec, store=store).is_measured(trial)
    ((name, calibration),) = measured(spec, 8).items()
    assert calibration is not None
    store.calibrations.measured(calibration.device, name, lambda: calibration)
    assert (Widths(spec, store=store).is_measured(trial), Widths(spec, store=store).width(trial)) == (True, 9)
    two_threads = parse(GOOD + "launch: {cpus: 2}\n")
    assert not Widths(two_threads, store=store).is_measured(trial), "two threads are another device"


def test_a_trial_that_has_started_needs_no_measurement() -> None:
    spec = parse(GOOD)
    started = {trial.trial_id: TrialState("interrupted", 4, 1) for trial in spec.trials}
    made = plan(spec, started)
    assert made.to_measure == [] and {stack.width for stack in made.stacks} == {4}


@pytest.mark.parametrize(
    ("text", "width"),
    [
        (GOOD + "launch: {stack: 5}\n", 5),
        (GOOD + "early_terminate: {type: hyperband, min_iter: 1}\n", 3),
        (CONVEX, CONVEX_STACK),
    ],
)
def test_a_width_that_is_not_measured(text: str, width: int) -> None:
    spec = parse(text)
    assert plan(spec, {}).to_measure == []
    assert {Widths(spec).width(trial) for trial in spec.trials} == {width}


def test_a_share_of_a_gpu_is_measured_also_for_trials_that_have_their_k() -> None:
    spec = parse(GOOD + "launch: {gpus: auto}\n")
    started = {trial.trial_id: TrialState("interrupted", 4, 1) for trial in spec.trials}
    before = plan(spec, started)
    assert len(before.to_measure) == 1
    trial = spec.trials[0]
    assert before.widths.gpus(trial) == 1.0 == spec.launch.resources.gpus and spec.launch.device == "cuda"
    after = Widths(spec, measured=measured(spec, 16, 0.25))
    assert after.gpus(trial) == 0.25 and after.is_measured(trial)
    assert ": K = 15, GPUs per stack = 0.25, measured on" in after.lines([trial])[0]


def test_a_share_is_measured_at_the_k_that_a_search_fixes() -> None:
    spec = parse(GOOD + "early_terminate: {type: hyperband, min_iter: 1}\nlaunch: {gpus: auto}\n")
    job = Widths(spec).measurement(spec.trials[0], "")
    assert (job.width, job.is_shared) == (3, True)
    assert job.name == f"{spec.trials[0].signature}-3-shared"
