"""Convex problems: their constants against their Hessians."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polysweep.trainer.convex.problem import logistic, ridge


@pytest.mark.parametrize(("n", "d", "condition"), [(100, 100, 10.0), (60, 20, 3.0), (8, 8, 1.0), (5, 1, 1.0)])
def test_a_has_the_condition_number_that_was_asked_for(n: int, d: int, condition: float) -> None:
    problem = ridge(n, d, condition, 0.0, consistent=True, problem_seed=3)
    assert np.linalg.cond(problem.a) == pytest.approx(condition, rel=1e-12)
    assert problem.L / problem.mu == pytest.approx(condition**2, rel=1e-9)
    assert pytest.approx(condition / n, rel=1e-12) == problem.L
    other = ridge(n, d, condition, 0.0, consistent=True, problem_seed=4)
    assert not np.array_equal(problem.a, other.a)
    assert np.array_equal(problem.a, ridge(n, d, condition, 0.0, consistent=True, problem_seed=3).a)


@pytest.mark.parametrize("lambda_r", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("consistent", [True, False])
def test_the_constants_of_ridge_are_those_of_its_hessians(lambda_r: float, consistent: bool) -> None:
    problem = ridge(30, 12, 7.0, lambda_r, consistent=consistent, problem_seed=0)
    hessian = problem.a.T @ problem.a / 30 + lambda_r * np.eye(12)
    low, *_, high = np.linalg.eigvalsh(hessian)
    assert (problem.L, problem.mu) == (pytest.approx(high, rel=1e-12), pytest.approx(low, rel=1e-9))
    each = [np.linalg.eigvalsh(np.outer(row, row) + lambda_r * np.eye(12))[-1] for row in problem.a]
    assert problem.smoothness == pytest.approx(np.array(each), rel=1e-9)
    assert problem.L_max == max(problem.smoothness)
    assert np.linalg.norm(problem.gradient(problem.x_star)) < 1e-13
    assert problem.f_star == (0.0 if consistent and not lambda_r else pytest.approx(problem.value(problem.x_star)))
    assert problem.is_interpolated == (consistent and not lambda_r)
    assert problem.sigma2(0.25) == problem.f_star - 0.25


def test_logistic_has_a_minimiser_and_is_as_smooth_as_it_says() -> None:
    problem = logistic(200, 20, 0.2, problem_seed=0)
    assert problem.mu == 0 and np.linalg.norm(problem.gradient(problem.x_star)) < 1e-15
    rng = np.random.default_rng(1)
    for _ in range(50):
        x, y = rng.normal(size=(2, 20)) * rng.uniform(0, 5)
        turned = np.linalg.norm(problem.gradient(x) - problem.gradient(y))
        assert turned <= problem.L * np.linalg.norm(x - y) * (1 + 1e-12)
        assert problem.value(x) >= problem.f_star
        for i in range(5):
            s, t = (1 / (1 + math.exp(problem.b[i] * (problem.a[i] @ z))) for z in (x, y))
            assert abs(s - t) * np.linalg.norm(problem.a[i]) <= problem.smoothness[i] * np.linalg.norm(x - y) + 1e-15
