"""Early termination: the rungs, and which points survive there."""

from __future__ import annotations

import math

import pytest

from polysweep.sweeps.spec.hyperband import Hyperband, mean_curve, survives


def test_rungs_are_where_wandb_has_them() -> None:
    def rungs(epochs: int, **settings: float) -> list[int]:
        return Hyperband.model_validate({"type": "hyperband", **settings}).rungs(epochs)

    assert rungs(100, min_iter=3) == [3, 9, 27, 81]
    assert rungs(100, min_iter=3, eta=2) == [3, 6, 12, 24, 48, 96]
    assert rungs(81, min_iter=3) == [3, 9, 27]
    assert rungs(2, min_iter=3) == []
    assert rungs(100, max_iter=27, s=2) == [3, 9]
    assert rungs(100, max_iter=100, s=2, eta=3) == [11, 33]
    assert rungs(20, min_iter=1, eta=1.5) == [1, 2, 3, 5, 7, 11, 17], "each rounded down, and once"
    assert rungs(100, max_iter=27, s=9, eta=2.5) == [1, 4, 10], "none of less than an epoch"
    assert rungs(100, min_iter=5, s=2) == [5, 15, 45] and rungs(100, min_iter=5, max_iter=50) == [5, 15, 45]
    assert rungs(100, min_iter=5, max_iter=27, s=2) == [3, 9]


def test_words_of_a_launched_sweep_do_not_change() -> None:
    """They tell whether a spec is still the one that was launched."""
    assert Hyperband(type="hyperband", min_iter=3).model_dump(exclude_none=True) == {
        "type": "hyperband", "min_iter": 3, "eta": 3,
    }  # fmt: skip


def test_one_of_eta_goes_on_by_the_value_at_the_rung() -> None:
    """Of three points with eta = 2 those stop that are worse than the one of rank 1, counted from 0."""
    curves = [[0.1, 0.2], [0.5, 0.3], [0.2, 0.4], [0.9]]

    def going(*, strict: bool) -> list[bool]:
        judged = [(own, [c for c in curves if c is not own]) for own in curves if len(own) >= 2]
        return [survives(own, others, 2, 2, "maximize", strict=strict) for own, others in judged]

    assert going(strict=True) == [False, True, True], "0.9 has not come as far"
    assert not survives([0.5, 0.1], curves, 2, 2, "maximize")
    assert survives([0.5, 0.1], curves, 2, 2, "maximize", strict=False), "its best value, 0.5, counts"
    assert survives([3.0, 1.0], [[2.0, 2.0], [5.0, 1.0]], 2, 3, "minimize"), "ties go on"
    assert survives([0.1, 0.1], [], 2, 3, "maximize"), "the first one has nobody to be compared with"


def test_a_point_is_as_far_as_its_slowest_seed_and_ends_where_one_diverges() -> None:
    assert mean_curve([[0.1, 0.2, 0.3], [0.3, 0.4]]) == pytest.approx([0.2, 0.3])
    assert mean_curve([[0.1, None], [0.3, 0.4]]) == pytest.approx([0.2])
    assert mean_curve([[0.1, math.inf], [0.3, 0.4]]) == pytest.approx([0.2])
    assert mean_curve([[], [0.3]]) == []
