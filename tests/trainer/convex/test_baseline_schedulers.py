"""Published baselines in a stack: constant radii and step sizes, and decreasing ones."""

from __future__ import annotations

import math

import pytest
import torch

from polysweep.trainer.convex.baseline_schedulers import Published
from polysweep.trainer.convex.problem import problem_of
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.scheduler import StepContext
from tests.support.convex_trials import NOISY, config

STOCHASTIC = {"batch_size": 10, "scheduler_options": {"setting": "stochastic"}}


def radius_and_gamma(rule: Published, t: int) -> tuple[list[float], list[float]]:
    """Of step t, by row, where the configs ask for the radius 7 and the gradient is of no account."""
    step, one = torch.tensor(t), torch.ones(len(rule.configs), 1, dtype=torch.float64)
    context = StepContext(LossAndGrad(one[:, 0], one, one), one, step, one)
    gamma, state = rule.gamma(context, {})
    assert state == {} and not gamma.capped.any() and not gamma.zeroed.any()
    return rule.radius(step, 7 * one[:, 0]).tolist(), gamma.value.tolist()


def test_a_constant_baseline_fixes_radius_and_step_size_for_all_steps() -> None:
    rows = [config(scheduler="khanh2024", task_options={"condition": condition}) for condition in (10.0, 5.0)]
    rule = Published(rows, torch.device("cpu"), torch.float64)
    smooth = [problem_of("ridge", row.task_options).L for row in rows]
    for t in (0, 1000):
        radius, gamma = radius_and_gamma(rule, t)
        assert radius == [1 / (2 * value) for value in smooth] and gamma == [2 / (9 * value) for value in smooth]


def test_a_decreasing_baseline_leaves_the_constant_row_beside_it_alone() -> None:
    """min{(8 t + 4) / (3 mu (t + 1)^2), 1 / (2 L_max)}: the second at first, the first in the end."""
    decreasing = config(scheduler="andriushchenko2022", task_options=NOISY, **STOCHASTIC)
    constant = config(scheduler="andriushchenko2022", task_options=NOISY)
    problem = problem_of("ridge", decreasing.task_options)
    rule = Published([decreasing, constant], torch.device("cpu"), torch.float64)
    late = (8 * 10**6 + 4) / (3 * problem.mu * (10**6 + 1) ** 2)
    assert late < 1 / (2 * problem.L_max)
    for t, expected in ((0, 1 / (2 * problem.L_max)), (10**6, late)):
        radius, gamma = radius_and_gamma(rule, t)
        assert radius == pytest.approx([math.sqrt(expected / problem.L_max), 1 / (2 * problem.L)], rel=1e-14)
        assert gamma == pytest.approx([expected, 1 / (2 * problem.L)], rel=1e-14)
