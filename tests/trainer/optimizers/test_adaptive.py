"""Baselines and adaptive optimizers on convex tasks, against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.problem import Problem
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.loading import load_task
from tests.support import numpy_methods as loops
from tests.support.convex_trials import NOISY, config, run

# methods against NumPy -----------------------------------------------------------------------------------------------

Loop = Callable[[Problem, Any, Any], Iterator[Any]]
METHODS: dict[str, tuple[dict[str, Any], Loop]] = {
    "polyak-deterministic": (
        {"scheduler": "polyak-deterministic", "rho": 4.0},
        lambda p, x, b: loops.usam(p, x, b, 4.0),
    ),
    "polyak": (
        {"scheduler": "polyak", "rho": 0.2, "gamma_b": 2.0, "lower_bound": 0.001},
        lambda p, x, b: loops.usam(p, x, b, 0.2, cap=2.0, lower_bound=0.001),
    ),
    "sam polyak": (
        {"optimizer": "sam", "scheduler": "polyak", "rho": 0.02, "gamma_b": 2.0},
        lambda p, x, b: loops.usam(p, x, b, 0.02, cap=2.0, normalised=True),
    ),
    "decreasing radius": (
        {"scheduler": "polyak", "rho": 0.2, "rho_schedule": "inverse_sqrt"},
        lambda p, x, b: loops.usam(p, x, b, lambda t: 0.2 / math.sqrt(t + 1), cap=1.0),
    ),
    "constant": ({"scheduler": "constant", "rho": 0.2, "lr": 0.1}, lambda p, x, b: loops.usam(p, x, b, 0.2, 0.1)),
    "khanh2024": ({"scheduler": "khanh2024"}, lambda p, x, b: loops.usam(p, x, b, 1 / (2 * p.L), 2 / (9 * p.L))),
    "andriushchenko2022": (
        {"scheduler": "andriushchenko2022"},
        lambda p, x, b: loops.usam(p, x, b, 1 / (2 * p.L), 1 / (2 * p.L)),
    ),
    "oikonomou2025": (
        {"scheduler": "oikonomou2025"},
        lambda p, x, b: loops.usam(p, x, b, 1 / (6 * p.L), (1 - 0.5) / (p.L * (2 / 36 + 1)) / 2),
    ),
    "andriushchenko2022 stochastic": (
        {"scheduler": "andriushchenko2022", "scheduler_options": {"setting": "stochastic"}},
        lambda p, x, b: loops.usam(
            p, x, b, lambda t: math.sqrt(_decreasing(p, t) / p.L_max), lambda t: _decreasing(p, t)
        ),
    ),
    "oikonomou2025 stochastic": (
        {"scheduler": "oikonomou2025", "scheduler_options": {"setting": "stochastic"}},
        lambda p, x, b: loops.usam(p, x, b, *loops.midpoints(p)),
    ),
    "adasam": (
        {"optimizer": "adasam", "scheduler": "constant", "lr": 0.05, "rho": 0.01,
         "optimizer_options": {"beta1": 0.8, "beta2": 0.95}},
        lambda p, x, b: loops.adasam(p, x, b, 0.05, 0.01, 0.8, 0.95),
    ),
    "lightsam-i": (
        {"optimizer": "lightsam-i", "scheduler": "constant", "lr": 5.0, "rho": 0.1},
        lambda p, x, b: loops.lightsam1(p, x, b, 5.0, 0.1),
    ),
    "lightsam-ii": (
        {"optimizer": "lightsam-ii", "scheduler": "constant", "lr": 0.5, "rho": 0.1,
         "optimizer_options": {"eps": 1e-4}},
        lambda p, x, b: loops.lightsam2(p, x, b, 0.5, 0.1, 1e-4),
    ),
    "lightsam-iii": (
        {"optimizer": "lightsam-iii", "scheduler": "constant", "lr": 0.02, "rho": 0.01,
         "optimizer_options": {"beta1": 0.8, "beta2": 0.95}},
        lambda p, x, b: loops.lightsam3(p, x, b, 0.02, 0.01, 0.8, 0.95),
    ),
    "sa-sam": (
        {"optimizer": "sa-sam", "scheduler": "constant", "lr": 0.1},
        lambda p, x, b: loops.sasam(p, x, b, 0.1),
    ),
    "adam": (
        {"optimizer": "adam", "scheduler": "constant", "lr": 0.02, "weight_decay": 0.1,
         "optimizer_options": {"beta1": 0.8, "beta2": 0.95, "eps": 1e-4}},
        lambda p, x, b: loops.adam(p, x, b, 0.02, 0.8, 0.95, 1e-4, coupled=0.1),
    ),
    "adamw": (
        {"optimizer": "adamw", "scheduler": "constant", "lr": 0.02, "weight_decay": 0.1},
        lambda p, x, b: loops.adam(p, x, b, 0.02, decoupled=0.1),
    ),
    "usam on adam": (
        {"optimizer": "usam", "base": "adam", "scheduler": "constant", "lr": 0.02, "rho": 0.2, "weight_decay": 0.1},
        lambda p, x, b: loops.adam(p, x, b, 0.02, coupled=0.1, rho=0.2),
    ),
    "sam on adamw": (
        {"optimizer": "sam", "base": "adamw", "scheduler": "constant", "lr": 0.02, "rho": 0.02, "weight_decay": 0.1,
         "optimizer_options": {"beta1": 0.8}},
        lambda p, x, b: loops.adam(p, x, b, 0.02, 0.8, decoupled=0.1, rho=0.02, normalised=True),
    ),
    "sgdw": (
        {"optimizer": "sgdw", "scheduler": "constant", "lr": 0.02, "momentum": 0.9, "weight_decay": 0.1},
        lambda p, x, b: loops.sgdw(p, x, b, 0.02, 0.9, 0.1),
    ),
    "usam on sgdw": (
        {"base": "sgdw", "scheduler": "constant", "lr": 0.02, "rho": 0.2, "momentum": 0.9, "weight_decay": 0.1},
        lambda p, x, b: loops.sgdw(p, x, b, 0.02, 0.9, 0.1, 0.2),
    ),
}  # fmt: skip


def _decreasing(problem: Problem, t: int) -> float:
    return min((8 * t + 4) / (3 * problem.mu * (t + 1) ** 2), 1 / (2 * problem.L_max))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_agrees_with_its_numpy_twin_over_200_steps(name: str) -> None:
    """Beside three other seeds in one stack; to 1e-10 of the largest entry at every step.

    Of the Polyak scheduler on full batches where A is well conditioned: with condition number 10 its iterates are
    chaotic, and two ways of adding up part at once (docs/theory.md). Its single steps are compared in `test_polyak`.
    """
    values, loop = METHODS[name]
    full = name in ("polyak-deterministic", "khanh2024", "andriushchenko2022", "oikonomou2025")
    options: dict[str, Any] = {} if full else NOISY
    if name == "polyak-deterministic":
        options = {"condition": 1.5}
    configs = [
        config(**{"batch_size": 100 if full else 10, "task_options": options, "seed": seed, **values})
        for seed in range(4)
    ]
    task = load_task(configs[0])
    stack = Stack(configs, task)
    runner = EpochRunner(stack)
    everything = (task.order([2], t + 1, configs[0].batch_size)[0].numpy() for t in range(200))
    twin = loop(task.problem, task.start(2).numpy(), everything)
    for t, expected in zip(range(200), twin, strict=True):
        assert runner.run(t + 1, t, lambda: False) is not None
        assert np.abs(stack.theta[2].numpy() - expected).max() <= 1e-10 * np.abs(expected).max(), f"step {t + 1}"


@pytest.mark.parametrize("name", ["adasam", "lightsam-i", "lightsam-ii", "lightsam-iii", "sa-sam"])
def test_an_adaptive_optimizer_trains_the_digits_too(name: str) -> None:
    """In a stack whose rows differ in their options, each as it is beside another one."""
    lr = {"lightsam-i": 1.0, "sa-sam": 0.1}.get(name, 0.01)
    base = {"task": "digits", "model": "mlp", "optimizer": name, "scheduler": "constant", "lr": lr, "epochs": 3}
    options = {"beta1": 0.5} if name in ("adasam", "lightsam-iii") else {}
    radius = {} if name == "sa-sam" else {"rho": 0.001}
    first = TrialConfig.parse({**base, **radius, "weight_decay": 5e-4})
    other = TrialConfig.parse({**base, **radius, "optimizer_options": options, "seed": 1})
    assert first.signature == other.signature
    a, b = run([first, other]), run([other, first])
    assert a[0][-1].outcome == "finished"
    if name != "sa-sam":  # whose radius, the root of its step size, is too long for a network: docs/theory.md
        assert a[0][-1].history["train/loss"] < a[0][0].history["train/loss"]
    assert [r.history["test/loss"] for r in a[0]] == [r.history["test/loss"] for r in b[1]]
