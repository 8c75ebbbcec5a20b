"""The paper's formulas on one curve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polysweep.analysis.theory.curves import MethodCurve, Statement
from polysweep.trainer.convex.problem import problem_of


def test_factors_and_bounds_are_those_of_the_formulas(lines: list[MethodCurve]) -> None:
    """By hand from the histories and the constants of the paper's problem: L = 0.1, mu = 0.001."""
    line = next(one for one in lines if one.label == "usam polyak-deterministic rho=2.5")
    strongly, convex = line.statements
    assert strongly.bound == pytest.approx(1 - 0.001 * (1 - 0.25) ** 2 / 0.4, rel=1e-9)
    assert convex.bound == pytest.approx(0.2 / 0.75**2, rel=1e-9)
    one = line.history[line.history["step"] == 40]
    start = one["distance"] / one["distance/relative"]
    assert line.curve(strongly, np.array([40.0]))[0] == pytest.approx(strongly.bound**40 * start.mean())
    assert line.curve(convex, np.array([40.0]))[0] == pytest.approx(convex.bound / 40 * start.mean())
    left = line.history.groupby("step")["distance"].mean() / start.mean()
    end = left[left <= 2 * left.min()].index[0]
    assert line.measured(strongly) == pytest.approx(left[end] ** (1 / end))
    averaged = line.history.groupby("step")["suboptimality/cesaro"].mean()
    assert line.measured(convex) == pytest.approx((averaged * averaged.index).max() / start.mean())
    noisy = next(one for one in lines if one.label == "usam polyak rho=0.1" and one.problem.kind == "ridge")
    problem = problem_of("ridge", {"lambda_r": 0.001, "consistent": False})
    alpha = (1 - 0.1 * problem.L_max) ** 2 / (2 * problem.L_max)
    assert noisy.statements[0].bound == pytest.approx(1 - problem.mu * alpha / 2)
    assert noisy.statements[0].stays == pytest.approx(2 * (2 - alpha) / (problem.mu * alpha) * problem.f_star)
    assert noisy.statements[1].stays == pytest.approx((2 - alpha) / alpha * problem.f_star)
    constant = next(one for one in lines if "constant" in one.label and one.run["optimizer"] == "usam")
    share = (1 - 0.1 * problem.L_max) ** 2
    assert constant.statements[0].bound == pytest.approx(1 - problem.mu * share * 0.05 / 2)
    assert constant.statements[0].stays == pytest.approx(2 * (2 - share) / (problem.mu * share) * problem.f_star)


def test_a_bound_above_the_start_is_vacuous(lines: list[MethodCurve]) -> None:
    line = next(one for one in lines if one.label == "usam polyak rho=0.1" and one.problem.kind == "ridge")
    (rate, _) = line.statements
    assert rate.stays > line.start[1] and line.verdict(rate) == "vacuous"
    assert not line.is_vacuous(replace(rate, stays=0.0)) and line.verdict(replace(rate, stays=0.0)) != "vacuous"


def test_a_rate_falls_by_its_factor_a_step_and_an_average_by_their_number() -> None:
    steps = np.array([0.0, 1.0, 4.0])
    assert Statement("a rate", "rate", 0.5, stays=1.0).after(steps, 16.0).tolist() == [17, 9, 2]
    assert Statement("an average", "cesaro", 2.0, stays=1.0).after(steps, 16.0).tolist() == [33, 33, 9]
