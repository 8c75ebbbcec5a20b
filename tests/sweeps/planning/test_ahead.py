"""What comes next: reporting seeds, looks and bounds, power from the stds so far, and the end at `max_trials`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polysweep.sweeps.planning.ahead import lines_ahead
from polysweep.sweeps.planning.decide import decided
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.states import State, TrialState
from tests.support.replicated_worlds import REPLICATE, World, run_world, world_spec


def equal(_: Mapping[str, Any]) -> tuple[float, float]:
    return 0.9, 0.01


def ahead(spec: SweepSpec, state: State = State.FINISHED) -> str:
    trials = {trial.trial_id: trial for trial in spec.trials}
    world: Any = World(equal, 0, trials)
    return "\n".join(lines_ahead(spec, world, dict.fromkeys(trials, TrialState(state))))


def test_before_the_first_launch() -> None:
    text = ahead(world_spec(replicate={**REPLICATE, "margin": "2 points"}), State.NEW)
    assert "then the chosen candidate of each of 8 cells runs on 3 reporting seeds: 24 trials" in text
    assert "replicate: scheduler by test/top1, equivalent within 2 points; comparisons: 4; level 0.05 over all" in text
    assert "all looks, at n = 3 (at 0.00028), 5 (at 0.0005), 10 (at 0.0023), 20 (at 0.0094)" in text
    assert text.count("not known before two seeds of both have finished and differ") == 4


def test_a_first_look_at_more_seeds_than_report_is_counted_in_full() -> None:
    text = ahead(world_spec(replicate={**REPLICATE, "looks": [10, 20]}), State.NEW)
    assert "each of 8 cells runs on 10 reporting seeds: 80 trials" in text


def test_before_the_first_look_the_stds_are_those_of_the_tuning_seeds() -> None:
    spec = world_spec()
    trials = {trial.trial_id: trial for trial in spec.trials}
    world: Any = World(equal, 0, trials)
    chosen = decided(spec, world, dict.fromkeys(trials, TrialState(State.FINISHED)), keep=False)
    states = {t.trial_id: TrialState(State.NEW if t.is_added else State.FINISHED) for t in chosen.trials}
    world.trials = {trial.trial_id: trial for trial in chosen.trials}
    text = "\n".join(lines_ahead(chosen, world, states))
    assert "look 1 at 3 seeds" in text and text.count("is shown with a chance of 80%") == 4


def test_after_a_look_the_power_of_the_next_is_that_of_the_stds_so_far() -> None:
    limited = run_world(world_spec(replicate={**REPLICATE, "max_trials": 100}), equal, 0)
    text = ahead(limited)
    assert "look 3 is not made: it needs 128 trials in all, and max_trials is 100; open comparisons: 4" in text
    raised = world_spec(replicate={**REPLICATE, "margin": "2 points"}).with_decisions(limited.decisions)
    text = ahead(raised)
    assert "look 3 at 10 seeds; its power by the stds so far:" in text
    assert text.count("points is shown with a chance of 80%, of 2 points with") == 4
    assert text.count("that equal cells are equivalent with") == 4


def test_when_all_is_decided_nothing_comes() -> None:
    def clear(values: Mapping[str, Any]) -> tuple[float, float]:
        return (0.99 if values["scheduler"] == "polyak" else 0.5), 0.01

    text = ahead(run_world(world_spec(), clear, 0))
    assert text.count("\n") == 0 and text.startswith("replicate: ")
