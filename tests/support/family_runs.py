"""Trials of the SAM family on softmax regression over the digits, beside their twin with gradients in closed form."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.draws import bernoulli, step_keys, threshold
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.streams import stream_seed
from tests.support.family_twin import Step, Vector, trajectory
from tests.support.stacks import mini_batches, stack_of

SOFTMAX: Final = {
    "task": "digits", "model": "mlp", "model_options": {"layers": 0}, "precision": "float64", "batch_size": 64,
    "epochs": 4, "weight_decay": 5e-4,
}  # fmt: skip

OPTIMIZERS: Final[dict[str, list[dict[str, Any]]]] = {
    "sgd": [{}, {"seed": 1}],
    "usam": [{"rho": 0.1}, {"rho": 0.3, "rho_schedule": "inverse_sqrt"}],
    "sam": [{"rho": 0.05}, {"rho": 0.2, "seed": 1}],
    "asam": [{"rho": 0.5}, {"rho": 1.0, "optimizer_options": {"eta": 0.3}, "seed": 1}],
    "gsam": [{"rho": 0.05}, {"rho": 0.2, "optimizer_options": {"alpha": 0.1}, "rho_schedule": "inverse_sqrt"}],
    "f-sam": [{"rho": 0.05}, {"rho": 0.2, "optimizer_options": {"sigma": 0.5, "beta": 0.6}}],
    "looksam": [{"rho": 0.1}, {"rho": 0.2, "optimizer_options": {"every": 3, "alpha": 0.2}, "seed": 1}],
    "esam": [{"rho": 0.05}, {"rho": 0.2, "optimizer_options": {"beta": 0.3, "gamma": 0.8}, "seed": 1}],
}
"""By optimizer two rows of one stack that differ in their options."""
SCHEDULERS: Final[dict[str, list[dict[str, Any]]]] = {
    "constant": [{"lr": 0.1}, {"lr": 0.3, "momentum": 0.9}],
    "cosine": [{"lr": 0.3, "lr_min": 0.01}, {"lr": 0.1, "lr_min": 0.0}],
    "polyak": [{"gamma_b": 1.0}, {"gamma_b": 0.2, "lower_bound": 0.01}],
    "sps-plus": [{}, {"lower_bound": 0.01, "momentum": 0.1}],
    "decsps": [{}, {"gamma_b": 5.0, "scheduler_options": {"c0": 2.0}}],
    "momo": [{}, {"lr": 0.3, "lower_bound": 0.01, "scheduler_options": {"beta": 0.5}}],
    "ngn": [{"lr": 0.5}, {"lr": 3.0, "lower_bound": -0.1}],
}
"""By scheduler what those two rows differ in besides."""
AHEAD: Final = ("constant", "cosine")
COMBINATIONS: Final = [
    (optimizer, scheduler)
    for optimizer in OPTIMIZERS
    for scheduler in SCHEDULERS
    if scheduler in AHEAD or optimizer not in ("gsam", "looksam")
]


def rows(optimizer: str, scheduler: str, **changes: Any) -> list[TrialConfig]:
    """The two rows of a combination."""
    base = {**SOFTMAX, "optimizer": optimizer, "scheduler": scheduler, **changes}
    pairs = zip(OPTIMIZERS[optimizer], SCHEDULERS[scheduler], strict=True)
    return [TrialConfig.parse({**base, **a, **b}) for a, b in pairs]


def softmax_step(images: Vector, labels: Vector, mask: Vector | None = None) -> Step:
    """The losses and gradients of logits W image + b at x = (W, b), of images (b, 64)."""
    hot = np.eye(10)[labels]

    def logits(x: Vector) -> Vector:
        return images @ x[:640].reshape(10, 64).T + x[640:]

    def losses(x: Vector) -> Vector:
        return np.logaddexp.reduce(logits(x), axis=1) - (hot * logits(x)).sum(1)

    def gradient(x: Vector, weights: Vector) -> Vector:
        of_logits = weights[:, None] * (np.exp(logits(x) - np.logaddexp.reduce(logits(x), axis=1)[:, None]) - hot)
        return np.concatenate([(of_logits.T @ images).ravel(), of_logits.sum(0)])

    return Step(losses, gradient, mask)


def mask_of(config: TrialConfig, step: Tensor, count: int) -> Vector | None:
    """The mask that ESAM draws; what it is like is tested with the draws."""
    if config.optimizer != "esam":
        return None
    keys = step_keys(torch.tensor([stream_seed(config.seed, "esam")]), step)
    limits = torch.tensor([threshold(1 - config.optimizer_options["beta"])])
    return bernoulli(keys, limits, count)[0].numpy()


def differences(configs: Sequence[TrialConfig], steps: int) -> list[float]:
    """By row, the largest difference from the twin over all steps, relative to the twin's largest entry then."""
    stack = stack_of(*configs)
    start = stack.theta.numpy().astype(np.float64)
    batches = [batch for batch, _ in zip(mini_batches(stack, epochs=configs[0].epochs), range(steps), strict=False)]
    assert len(batches) == steps

    def seen(row: int) -> Iterator[tuple[int, Step]]:
        for epoch, step, images, labels in batches:
            flat = images[row].flatten(1).numpy().astype(np.float64)
            yield epoch, softmax_step(flat, labels[row].numpy(), mask_of(configs[row], step, start.shape[1]))

    twins = [
        trajectory(config.model_dump(exclude_none=True), start[row], seen(row)) for row, config in enumerate(configs)
    ]
    largest = [0.0] * len(configs)
    epoch = -1
    for now, step, images, labels in batches:
        if now != epoch:
            stack.step_sizes.start_epoch(now)
            epoch = now
        stack.step(images, labels, step)
        for row, twin in enumerate(twins):
            expected = next(twin)
            off = np.abs(stack.theta[row].numpy() - expected).max() / np.abs(expected).max()
            largest[row] = max(largest[row], float(off))
    assert stack.active.all()
    return largest


def ran(*configs: TrialConfig, steps: int = 30) -> Stack:
    """A stack after some steps, in which every row has moved."""
    stack = stack_of(*configs)
    start = stack.theta.clone()
    for _, step, images, labels in itertools.islice(mini_batches(stack), steps):
        stack.step(images, labels, step)
    assert (stack.theta - start).abs().amax(1).min() > 1e-3
    return stack


def one(optimizer: str, **changes: Any) -> TrialConfig:
    """Softmax regression with a constant step size."""
    return TrialConfig.parse({**SOFTMAX, "scheduler": "constant", "lr": 0.1, "optimizer": optimizer, **changes})
