"""Convex tasks: closed forms, mini-batches, and what a row's numbers depend on."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.task import Convex
from polysweep.trainer.tasks.loading import load_task
from tests.support.convex_trials import NOISY, config, histories, last, problem_options, run


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
