"""Step sizes that are known before the training: StepLR, MultiStepLR, warm-up with cosine annealing, and OneCycleLR.

Each is a formula of one step, named and parametrised as in torch.optim.lr_scheduler. T is the number of all steps.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.schedulers.cosine import cosine
from polysweep.trainer.schedulers.scheduler import Gamma, Scheduler, State, StepContext


class Planned(Scheduler):
    """A step size that follows from the step alone: a subclass writes `at`.

    The values of an epoch are computed before it, each by itself in float64; a step takes its column on the device.
    """

    _epoch: Tensor | None = None  # (K, steps of an epoch)

    @abstractmethod
    def at(self, config: TrialConfig, options: dict[str, Any], t: int) -> float:
        """gamma_t of step t = 0, 1, ... for a row with this config and these `scheduler_options`."""

    def start_epoch(self, epoch: int) -> None:
        """See `Scheduler`."""
        steps = range(epoch * self.steps_per_epoch, (epoch + 1) * self.steps_per_epoch)
        rows = [(config, config.scheduler_options) for config in self.configs]
        values = torch.tensor([[self.at(*row, t) for t in steps] for row in rows], **self.factory_kwargs)
        self._epoch = values if self._epoch is None else self._epoch.copy_(values)

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        assert self._epoch is not None, "an epoch has been started"
        column = (context.step % self.steps_per_epoch).view(1)
        return Gamma.of(self._epoch.index_select(1, column).squeeze(1)), state

    def total(self, config: TrialConfig) -> int:
        """T."""
        return config.epochs * self.steps_per_epoch


class Step(Planned):
    """lr gamma^floor(epoch / step_size), by epoch, as StepLR."""

    def at(self, config: TrialConfig, options: dict[str, Any], t: int) -> float:
        """See `Planned`."""
        return fallen(config.lr or 0.0, options["gamma"], t // self.steps_per_epoch // options["step_size"])


class MultiStep(Planned):
    """lr gamma^n with n the number of milestones that are not above the epoch 0, 1, ..., as MultiStepLR."""

    def at(self, config: TrialConfig, options: dict[str, Any], t: int) -> float:
        """See `Planned`."""
        passed = sum(milestone <= t // self.steps_per_epoch for milestone in options["milestones"])
        return fallen(config.lr or 0.0, options["gamma"], passed)


class WarmupCosine(Planned):
    """`warmup_cosine` by step."""

    def at(self, config: TrialConfig, options: dict[str, Any], t: int) -> float:
        """See `Planned`."""
        warmup = options["warmup_epochs"] * self.steps_per_epoch
        return warmup_cosine(
            config.lr or 0.0, config.lr_min or 0.0, options["start_factor"], warmup, self.total(config), t
        )


class OneCycle(Planned):
    """`one_cycle` by step, with lr as its largest step size."""

    def at(self, config: TrialConfig, options: dict[str, Any], t: int) -> float:
        """See `Planned`."""
        return one_cycle(config.lr or 0.0, total=self.total(config), t=t, **options)


def fallen(lr: float, gamma: float, count: int) -> float:
    """lr gamma^count."""
    return lr * float(gamma**count)


def warmup_cosine(lr: float, lr_min: float, start_factor: float, warmup: float, total: int, t: int) -> float:
    """Linear warm-up over W = `warmup` steps, then cosine annealing over the remaining T - W.

        lr (start_factor + (1 - start_factor) t / W)                           t < W
        lr_min + (lr - lr_min) (1 + cos(pi (t - W) / (T - W))) / 2             t >= W

    SequentialLR of LinearLR (total_iters W) and CosineAnnealingLR (T_max T - W), stepped with every mini-batch; W need
    not be whole.
    """
    if t < warmup:
        return lr * (start_factor + (1 - start_factor) * t / warmup)
    return cosine(lr, lr_min, t - warmup, total - warmup)


def one_cycle(lr: float, pct_start: float, div_factor: float, final_div_factor: float, total: int, t: int) -> float:
    """OneCycleLR in two phases, `cos`: from lr / div_factor up to lr and down to lr / (div_factor final_div_factor).

    It is lr at t = pct_start T - 1 and smallest at t = T - 1. Momentum is not cycled. Source: Smith and Topin 2018,
    Super-Convergence, as in torch.optim.lr_scheduler.OneCycleLR.
    """
    top = pct_start * total - 1
    start = lr / div_factor
    end = start / final_div_factor
    if t < top:
        return cosine(start, lr, t, top)
    return cosine(lr, end, t - top, total - 1 - top)
