"""Convex tasks: constants, closed forms, mini-batches, and what a row's numbers depend on."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.problem import logistic, problem_of, ridge
from polysweep.trainer.convex.task import Convex
from polysweep.trainer.tasks.loading import load_task
from tests.support import numpy_methods as loops
from tests.support.convex_trials import NOISY, config, histories, last, problem_options, refusal, run


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


@pytest.mark.parametrize("kind", ["ridge", "logistic"])
@pytest.mark.parametrize("batch", [7, 40])
def test_the_closed_form_is_autograds(kind: str, batch: int) -> None:
    options = {"n": 40, "d": 9, "problem_seed": 1}
    given_ = {**options, **({"lambda_r": 0.01, "consistent": False} if kind == "ridge" else {"flipped": 0.3})}
    one = TrialConfig.parse(
        {"task": kind, "task_options": given_, "model": "linear", "optimizer": "sgd", "scheduler": "constant",
         "lr": 0.1, "batch_size": batch}
    )  # fmt: skip
    task = load_task(one)
    theta = torch.randn(5, 9, dtype=torch.float64)
    rows, order = task.mini_batch(task.order([0, 1, 2, 3, 4], 1, batch), None, None)
    found = task.pass_at(theta, rows, order)
    leaf = theta.clone().requires_grad_()
    z = torch.stack([task.a[picked] @ row for picked, row in zip(order, leaf, strict=True)])
    b = task.b[order]
    if kind == "ridge":
        loss = (z - b).square().mean(1) / 2 + 0.01 / 2 * leaf.square().sum(1)
    else:
        loss = F.softplus(-b * z).mean(1)
    loss.sum().backward()
    assert torch.allclose(found.loss, loss.detach(), rtol=1e-12)
    assert leaf.grad is not None and torch.allclose(found.grad, leaf.grad, rtol=1e-11, atol=1e-14)
    assert torch.allclose(
        task.gap(theta) + task.f_star, torch.tensor([task.problem.value(r.numpy()) for r in theta], dtype=torch.float64)
    )


def test_the_gap_is_exact_close_to_the_minimiser() -> None:
    """f - f* by subtraction would be 0 or noise there."""
    for kind in ("ridge", "logistic"):
        task = Convex(kind, problem_options(kind))
        direction = torch.nn.functional.normalize(torch.randn(1, task.problem.d, dtype=torch.float64))
        hessian = torch.from_numpy(task.problem.curvature(task.problem.x_star))
        for size in (1e-6, 1e-9):
            expected = (direction @ hessian @ direction.T).item() * size**2 / 2
            assert task.gap(task.x_star + size * direction).item() == pytest.approx(expected, rel=1e-3)


def test_mini_batches_are_drawn_without_replacement_and_by_themselves() -> None:
    task = Convex("ridge", {**problem_options("ridge"), "record_every": 4000})
    drawn = task.order([5, 6, 5], 1, 10)
    assert drawn.shape == (3, 40_000) and torch.equal(drawn[0], drawn[2]) and not torch.equal(drawn[0], drawn[1])
    steps = drawn[0].view(4000, 10)
    assert all(len(set(step.tolist())) == 10 for step in steps)
    counts = torch.bincount(steps.flatten(), minlength=100).double()
    assert (counts - 400).abs().max() < 5 * math.sqrt(4000 * 0.1 * 0.9)  # five standard deviations
    followed = sum(len(set(a.tolist()) & set(b.tolist())) for a, b in itertools.pairwise(steps)) / 3999
    assert followed == pytest.approx(1.0, abs=0.1), "two steps share one of ten, as independent draws do"
    assert torch.equal(task.order([5], 1, 100)[0].view(4000, 100)[7], torch.arange(100)), (
        "a full batch is all f_i, once"
    )


def test_a_rows_bits_depend_on_neither_its_neighbours_nor_its_place_nor_the_records() -> None:
    """At K = 13, no multiple of a tile, with a row that diverges in the middle of an epoch."""
    common: dict[str, Any] = {
        "batch_size": 10,
        "task_options": {"record_every": 7, **NOISY, "check": True},
        "epochs": 6,
    }
    rows = [config(**common, scheduler="polyak", rho=0.01 * i, seed=i % 3) for i in range(11)]
    wild = config(**common, scheduler="constant", rho=0.1, lr=1e30, seed=5)
    calm = config(**common, scheduler="constant", rho=0.1, lr=0.01, seed=5)
    a = run([*rows, wild, calm])
    b = run([calm, *rows[::-1], calm])
    assert a[11][-1].outcome == "diverged" and a[11][-1].history["partial"]
    assert a[11][-1].history["suboptimality"] is None and a[11][-1].history["gamma/mean"] == pytest.approx(1e30)
    for at in range(11):
        assert histories(a[at]) == histories(b[11 - at])
    assert histories(a[12]) == histories(b[0]) == histories(b[12])
    state = a[4][-1].checkpoint()["row"]
    assert all(torch.equal(state[name], b[7][-1].checkpoint()["row"][name]) for name in state)


@pytest.mark.parametrize("width", [2, 3, 5, 6])
@pytest.mark.parametrize("batch", [200, 20, 7])
def test_a_logistic_row_has_its_bits_in_a_narrow_stack_too(width: int, batch: int) -> None:
    """Where vectorised code takes the last values of a tensor one by one."""
    base = {"task": "logistic", "model": "linear", "optimizer": "usam", "scheduler": "polyak", "batch_size": batch}
    rows = [TrialConfig.parse({**base, "rho": 0.01 * i, "seed": i, "epochs": 12}) for i in range(width)]
    a, b = run(rows), run(rows[::-1])
    assert [histories(one) for one in a] == [histories(one) for one in b[::-1]]
    assert histories(run([rows[-1]], width=width)[0]) == histories(a[-1])


def test_mini_batches_do_not_depend_on_how_often_the_history_is_recorded() -> None:
    ends = set()
    for every in (1, 10, 300):
        one = config(
            batch_size=10,
            scheduler="polyak",
            rho=0.1,
            epochs=300 // every,
            task_options={"record_every": every, **NOISY},
        )
        ends.add(last(one)["suboptimality"])
    assert len(ends) == 1


def test_a_row_whose_distance_overflows_before_its_loss_has_diverged() -> None:
    row = run([config(scheduler="constant", rho=0.0, lr=2000.0, epochs=120)])[0][-1]
    assert row.outcome == "diverged" and row.history["distance"] is None


def test_a_continued_trial_has_the_bits_of_an_undisturbed_one() -> None:
    rows = [
        config(scheduler="constant", optimizer="adasam", lr=0.1, rho=0.01, epochs=8, seed=seed,
               task_options={"record_every": 5}, optimizer_options={"beta1": 0.1 * seed})
        for seed in range(3)
    ]  # fmt: skip
    whole = run(rows)
    saved = [reports[3].checkpoint() for reports in whole]
    again = run(rows, checkpoints=saved)
    for a, b in zip(whole, again, strict=True):
        assert histories(a)[4:] == histories(b)


@pytest.mark.parametrize("every", [10, 2000, pytest.param(1, marks=pytest.mark.long)])
def test_first_hits_and_averages_are_those_of_the_iterates(every: int) -> None:
    """Found by step, whatever the distance of the records."""
    problem = problem_of("ridge", problem_options("ridge"))
    task = load_task(config(scheduler="khanh2024"))
    x = task.start(0).numpy()
    points = [x, *loops.usam(problem, x, [np.arange(100)] * 4000, 1 / (2 * problem.L), 2 / (9 * problem.L))]
    gaps = np.array([(y - problem.x_star) @ problem.hessian @ (y - problem.x_star) / 2 for y in points])
    first = [int(np.argmax(gaps <= level * gaps[0])) for level in (1e-6, 1e-10)]
    one = config(scheduler="khanh2024", epochs=4000 // every, task_options={"record_every": every})
    row = last(one)
    assert [row["iterations/1e-6"], row["iterations/1e-10"]] == first
    assert row["step"] == 4000 and row["suboptimality/relative"] == pytest.approx(gaps[4000] / gaps[0], rel=1e-6)
    mean = np.mean(points[:4000], axis=0)
    assert row["suboptimality/cesaro"] == pytest.approx(problem.value(mean), rel=1e-9)
    assert row["distance"] == pytest.approx(np.square(points[4000] - problem.x_star).sum(), rel=1e-6)
    assert "violations/gamma" in row and row["violations/gamma"] is None, "counted with check: true only"
