"""Which trials of a convex task can be trained, and which radii the theorems cover."""

from __future__ import annotations

from typing import Any

import pytest

from polysweep.trainer.convex.problem import problem_of
from tests.support.convex_trials import NOISY, config, refusal


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"task_options": {"n": 50}}, "task_options.n: 50 is less than d = 100"),
        ({"task_options": {"lambda_r": -0.1}}, "task_options.lambda_r"),
        ({"task_options": {"condition": 0.5}}, "task_options.condition"),
        ({"task_options": {"d": 1}}, "task_options.condition: 10 with d = 1"),
        ({"task_options": {"rho": 1}}, "'ridge' has no option 'rho'; its options: n, d, problem_seed"),
        ({"model": "mlp"}, "model: 'mlp' is not for task 'ridge'; expected one of linear"),
        ({"precision": "float32"}, "precision: 'float32' is not for ridge; its own: float64"),
        ({"batch_size": 101}, "batch_size: 101 is larger than n = 100"),
        ({"val_fraction": 0.1}, "val_fraction: 0.1: ridge has nothing to hold out"),
        ({"batch_size": 10, "task_options": NOISY}, "'polyak-deterministic' needs full batches (batch_size: 100)"),
        (
            {"task_options": {"check": True}, "scheduler": "polyak", "lower_bound": 0.5, "batch_size": 10, "rho": 0.1},
            "lower_bound: 0.5 is not a known lower bound of every mini-batch loss: only 0 and below are",
        ),
        ({"task_options": {"condition": 1e8}}, "task_options.condition"),
        ({"task_options": {"check": True}, "rho": 10.5}, "rho: 10.5 is above 1/L = 10: no theorem of the paper"),
        ({"task_options": {"check": True}, "batch_size": 10, "rho": 0.5}, "rho: 0.5 is above 1/L_max = 0.28"),
        ({"scheduler": "khanh2024"}, "rho: scheduler 'khanh2024' fixes it itself; leave it out"),
        ({"scheduler": "khanh2024", "rho": None, "lr": 0.1}, "lr: scheduler 'khanh2024' does not use it"),
        ({"scheduler": "khanh2024", "rho": None, "batch_size": 10}, "the guarantee of 'khanh2024' is for full batches"),
        ({"scheduler": "oikonomou2025", "rho": None, "batch_size": 10}, "or scheduler_options.setting: stochastic"),
        (
            {"scheduler": "andriushchenko2022", "rho": None, "scheduler_options": {"setting": "exact"}},
            "scheduler_options.setting",
        ),
        (
            {"task": "logistic", "scheduler": "oikonomou2025", "rho": None, "batch_size": 10,
             "scheduler_options": {"setting": "stochastic"}},
            "'oikonomou2025' needs mu > 0; logistic has mu = 0",
        ),
        ({"scheduler": "khanh2024", "rho": None, "optimizer": "sgd"}, "'sgd' is not for scheduler 'khanh2024'"),
        ({"optimizer": "adasam"}, "scheduler: 'polyak-deterministic' is not for optimizer 'adasam'"),
        (
            {"optimizer": "adasam", "scheduler": "constant", "lr": 1.0, "optimizer_options": {"beta3": 0.9}},
            "'adasam' has no option 'beta3'; its options: beta1, beta2, eps",
        ),
        (
            {"optimizer": "adasam", "scheduler": "constant", "lr": 1.0, "optimizer_options": {"beta1": 1.0}},
            "optimizer_options.beta1",
        ),
        ({"optimizer": "sa-sam", "scheduler": "constant", "lr": 1.0}, "rho: optimizer 'sa-sam'"),
        ({"task": "digits", "model": "mlp"}, "requires f_star, which task 'digits' does not define"),
        ({"task": "logistic", "task_options": {"n": 20, "flipped": 0.01}, "batch_size": 20}, "a hyperplane separates"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused_with_the_valid_choices(values: dict[str, Any], says: str) -> None:
    assert says in refusal(**{"scheduler": "polyak-deterministic", "rho": 1.0, **values})


def test_a_radius_of_1_over_l_is_covered_though_l_is_rounded() -> None:
    assert problem_of("ridge", {}).L != 0.1
    config(scheduler="polyak-deterministic", rho=10.0, task_options={"check": True})


def test_a_decreasing_radius_may_start_above_the_bound() -> None:
    config(scheduler="polyak-deterministic", rho=20.0, rho_schedule="inverse", task_options={"check": True})
