"""Early termination: the rungs, and which points survive there."""

from __future__ import annotations

import math

import pytest

from polysweep.sweeps.spec.hyperband import Hyperband, mean_curve, survives


def test_rungs_are_where_wandb_has_them() -> None:
    def rungs(epochs: int, **given: int) -> list[int]:
        return Hyperband.model_validate({"type": "hyperband", **given}).rungs(epochs)

    assert rungs(100, min_iter=3) == [3, 9, 27, 81]
    assert rungs(100, min_iter=3, eta=2) == [3, 6, 12, 24, 48, 96]
    assert rungs(81, min_iter=3) == [3, 9, 27]
    assert rungs(2, min_iter=3) == []
    assert rungs(100, max_iter=27, s=2) == [3, 9]
    assert rungs(100, max_iter=100, s=2, eta=3) == [11, 33]


def test_one_of_eta_goes_on_by_the_best_value_so_far() -> None:
    curves = [[0.1, 0.2], [0.5, 0.3], [0.2, 0.4], [0.1, 0.1], [0.9]]
    going = [survives(own, [c for c in curves if c is not own], 2, 2, "maximize") for own in curves if len(own) >= 2]
    assert going == [False, True, True, False], "0.9 has not come as far; the best of 0.5 and 0.3 counts"
    assert survives([3.0, 1.0], [[2.0, 2.0], [1.0, 5.0]], 2, 3, "minimize"), "ties go on"
    assert survives([0.1, 0.1], [], 2, 3, "maximize"), "the first one has nobody to be compared with"


def test_a_point_is_as_far_as_its_slowest_seed_and_ends_where_one_diverges() -> None:
    assert mean_curve([[0.1, 0.2, 0.3], [0.3, 0.4]]) == pytest.approx([0.2, 0.3])
    assert mean_curve([[0.1, None], [0.3, 0.4]]) == pytest.approx([0.2])
    assert mean_curve([[0.1, math.inf], [0.3, 0.4]]) == pytest.approx([0.2])
    assert mean_curve([[], [0.3]]) == []
