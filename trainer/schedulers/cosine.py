"""Step sizes that follow from the epoch alone: constant, and cosine annealing; and none at all."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.schedulers.scheduler import Gamma, Scheduler, State, StepContext


class Constant(Scheduler):
    """gamma_t = lr."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._gamma = Gamma.of(torch.tensor([c.lr for c in configs], **self.factory_kwargs))

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:  # noqa: ARG002
        """See `Scheduler`."""
        return self._gamma, state


class Own(Scheduler):
    """None: the optimizer chooses its step size itself, and is not to ask for one."""

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """NaN."""
        return Gamma.of(torch.full_like(context.loss, torch.nan)), state


class Cosine(Scheduler):
    """Cosine annealing by epoch, see `cosine`."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._now = torch.zeros(len(configs), **self.factory_kwargs)

    def start_epoch(self, epoch: int) -> None:
        """See `Scheduler`."""
        values = [cosine(c.lr or 0.0, c.lr_min or 0.0, epoch, c.epochs) for c in self.configs]
        self._now.copy_(torch.tensor(values, **self.factory_kwargs))

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:  # noqa: ARG002
        """See `Scheduler`."""
        return Gamma.of(self._now), state


def cosine(lr: float, lr_min: float, epoch: float, epochs: float) -> float:
    """Cosine annealing: lr_min + (lr - lr_min) (1 + cos(pi t / T)) / 2 for epoch t = 0 .. T - 1, or a step.

    The closed form of the paper's recursion (eq. Cosine Annealing), equal to it to rounding; `lr_min` itself would be
    the value of epoch T, which is never trained.
    """
    return lr_min + (lr - lr_min) * (1 + math.cos(math.pi * epoch / epochs)) / 2
