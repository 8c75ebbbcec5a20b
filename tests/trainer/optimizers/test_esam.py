"""ESAM: where it is SAM, and which coordinates and samples it takes; `test_family` has its twin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.samples import Samples
from polysweep.trainer.tasks.supervised import Regression
from tests.support.family_runs import one, ran
from tests.support.stacks import mini_batches, stack_of


def test_esam_of_all_coordinates_and_samples_is_sam() -> None:
    """The mean of the losses is added up otherwise, in float64."""
    esam = ran(one("esam", rho=0.2, optimizer_options={"beta": 1.0, "gamma": 1.0}))
    torch.testing.assert_close(esam.theta, ran(one("sam", rho=0.2)).theta, rtol=0, atol=1e-12)


def test_esam_follows_label_smoothing() -> None:
    options = {"rho": 0.2, "label_smoothing": 0.2}
    esam = ran(one("esam", optimizer_options={"beta": 1.0, "gamma": 1.0}, **options), one("esam", rho=0.1))
    torch.testing.assert_close(esam.theta[:1], ran(one("sam", **options)).theta, rtol=0, atol=1e-12)


def test_esam_follows_the_samples_whose_losses_grow_most() -> None:
    """Two of four, and of equal growth the first; at least one of a mini-batch of one."""
    stack = stack_of(one("esam", rho=0.1, optimizer_options={"gamma": 0.5}))
    gamma = stack.step_sizes._rules["constant"]._gamma  # type: ignore[attr-defined]

    def chosen(*growth: float) -> list[float]:
        grown = torch.tensor([growth], dtype=torch.float64)
        before, weights = torch.full_like(grown, 5.0), []

        def f(theta: Tensor, weigh: Any = None) -> LossAndGrad:
            if weigh:
                weights.extend(weigh(before + grown)[0].tolist())
            return LossAndGrad(before.mean(1), theta, theta, lambda: before)

        stack._optimizer.update(f, lambda *_: gamma, stack.theta, {}, torch.tensor(0))
        return weights

    assert chosen(2, 0, 1, 1) == [0.5, 0, 0.5, 0]
    assert chosen(-3) == [1]


def test_esam_perturbs_a_share_beta_of_the_coordinates_by_one_over_beta() -> None:
    """Another share in every step and of every seed; within five standard deviations of a binomial share."""
    configs = [one("esam", rho=0.1, seed=seed, optimizer_options={"beta": 0.3}) for seed in range(2)]
    stack = stack_of(*configs)
    seen: list[Tensor] = []
    evaluate = stack._oracle.pass_at

    def pass_at(theta: Tensor, *rest: Any) -> LossAndGrad:
        seen.append(theta)
        result = evaluate(theta, *rest)
        seen.append(result.grad)
        return result

    stack._oracle.pass_at = pass_at  # type: ignore[method-assign]
    masks = []
    for (_, step, images, labels), _ in zip(mini_batches(stack), range(20), strict=False):
        seen.clear()
        stack.step(images, labels, step)
        x, g, e, _ = seen
        there = g.abs() > 1e-6  # pixels that are 0 in all images have no gradient
        full = 0.1 / 0.3 * g / g.norm(dim=1, keepdim=True)
        masks.append(there & ((e - x).abs() > full.abs() / 2))
        torch.testing.assert_close(torch.where(masks[-1], e - x - full, 0), torch.zeros_like(x), rtol=0, atol=1e-12)
        share = masks[-1].sum() / there.sum()
        assert abs(share - 0.3) < 5 * (0.21 / there.sum()) ** 0.5
    agree = [(masks[0] == other).double().mean() for other in (masks[1], masks[0].flip(0))]
    assert all(value < 0.8 for value in agree)


@pytest.mark.parametrize("width", [1, 2])
def test_esam_takes_the_losses_of_any_task_with_samples(width: int) -> None:
    """A regression, whose loss is a mean over the mini-batch: the weights pick one of its samples."""
    generator = torch.Generator().manual_seed(0)
    samples = Samples(torch.randn(64, 5, generator=generator).double(), torch.randn(64, generator=generator).double())
    task = Regression(samples, None, samples)
    stack = Stack([one("esam", rho=0.1, optimizer_options={"gamma": 0.01})] * width, task)
    images, targets = task.mini_batch(torch.arange(8).expand(width, -1), None, None)
    result = stack.step(images, targets, torch.tensor(0)).result
    before = (result.x.logits[..., 0] - targets).square()
    after = (result.e.logits[..., 0] - targets).square()
    torch.testing.assert_close(result.x.by_sample, before, rtol=0, atol=1e-12)
    worst = (after - before).argmax(1, keepdim=True)
    torch.testing.assert_close(result.e.loss, after.gather(1, worst).squeeze(1), rtol=0, atol=1e-12)
