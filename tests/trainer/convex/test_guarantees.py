"""Radius and step size of the published baselines."""

from __future__ import annotations

import pytest

from polysweep.trainer.convex.guarantees import decreasing_step, radius_and_step
from polysweep.trainer.convex.problem import problem_of
from tests.support import numpy_methods as loops


def test_the_published_radii_and_steps_are_the_papers_midpoints() -> None:
    problem = problem_of("ridge", {})
    assert pytest.approx(0.1) == problem.L
    assert radius_and_step("khanh2024", "deterministic", problem) == pytest.approx((5.0, 20 / 9))
    assert radius_and_step("andriushchenko2022", "deterministic", problem) == pytest.approx((5.0, 5.0))
    rho, gamma = radius_and_step("oikonomou2025", "deterministic", problem)
    assert (rho, gamma) == pytest.approx((10 / 6, 2.3684210526))  # what the authors' notebook prints: 1.667, 2.368
    assert radius_and_step("oikonomou2025", "stochastic", problem) == pytest.approx(loops.midpoints(problem), rel=1e-12)
    assert decreasing_step(3, 0.5) == pytest.approx(28 / (1.5 * 16))
