"""The Polyak step sizes: exact answers, and single steps against NumPy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.schedulers.polyak import polyak
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.loading import load_task
from tests.support import numpy_methods as loops
from tests.support.convex_trials import config


def tensors(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_polyak_solves_a_quadratic_as_the_formula_says() -> None:
    """f(e) = 2, l = 1, grad = (2, 0), perturbation = (0.25, 7): gamma = (2 - 1 - 0.5) / 4 = 0.125."""
    rule = polyak(tensors(2), tensors(1), tensors(2, 0).view(1, 2), tensors(0.25, 7).view(1, 2), tensors(1))
    assert rule.value.tolist() == [0.125]
    assert not rule.capped.any() and not rule.zeroed.any()


def test_polyak_counts_cap_and_safeguard() -> None:
    grad = tensors(1, 1, 1).view(3, 1)
    rule = polyak(tensors(5, 0.5, -1), tensors(0, 0, 0), grad, torch.zeros_like(grad), tensors(1, 1, 1))
    assert rule.value.tolist() == [1.0, 0.5, 0.0]
    assert rule.capped.tolist() == [True, False, False]
    assert rule.zeroed.tolist() == [False, False, True]


def test_polyak_at_a_zero_gradient_is_the_cap_or_zero_and_never_nan() -> None:
    zero = torch.zeros(3, 2, dtype=torch.float64)
    rule = polyak(tensors(1, 0, -1), tensors(0, 0, 0), zero, zero, tensors(0.7, 0.7, 0.7))
    assert rule.value.tolist() == [0.7, 0.0, 0.0]


def test_every_single_polyak_step_agrees_with_numpy_where_the_iterates_are_chaotic() -> None:
    """200 steps, the twin starting from our x each time; to 1e-10 of the step's length."""
    stack = Stack(
        [config(scheduler="polyak-deterministic", rho=4.0)], task := load_task(config(scheduler="polyak", rho=0))
    )
    runner = EpochRunner(stack)
    for t in range(200):
        before = stack.theta[0].numpy().copy()
        assert runner.run(t + 1, t, lambda: False) is not None
        (expected,) = loops.usam(task.problem, before, [np.arange(100)], 4.0)
        scale = np.abs(expected - before).max() + 1e-4 * np.abs(before).max()  # A x - b is rounded in the twin
        assert np.abs(stack.theta[0].numpy() - expected).max() <= 1e-10 * scale, f"step {t + 1}"
