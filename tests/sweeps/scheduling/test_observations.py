"""What bayes learns from the trials of a point."""

from __future__ import annotations

from polysweep.sweeps.scheduling.observations import Result, observation
from polysweep.sweeps.spec.search import Observation, Point, Suggestion

POINT = Suggestion(Point(0, {"rho": 0.1}), {"rho": 0.1})


def test_a_point_is_complete_with_the_mean_of_its_seeds() -> None:
    results = [Result("finished", 0.5), Result("finished", 0.25)]
    assert observation(POINT, results, 8) == Observation(POINT, "complete", 0.375)


def test_a_point_is_running_while_one_of_its_seeds_is_even_if_another_has_failed() -> None:
    assert observation(POINT, [Result("running", 0.5), Result("failed", None)], 2) == Observation(POINT, "running")


def test_a_diverged_failed_or_unmeasured_seed_makes_a_point_bad() -> None:
    for bad in (Result("diverged", 0.9), Result("failed", 0.9), Result("finished", None)):
        assert observation(POINT, [Result("finished", 0.5), bad], 2) == Observation(POINT, "bad")


def test_a_stopped_point_has_its_last_epoch() -> None:
    results = [Result("stopped", 0.5), Result("finished", 0.25)]
    assert observation(POINT, results, 3) == Observation(POINT, "stopped", 0.375, 3)
