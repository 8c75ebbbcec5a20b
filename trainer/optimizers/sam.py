"""Stochastic gradient descent, USAM and SAM. Notation as in `trainer.optimizers.optimizer`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.optimizers.optimizer import Optimizer, State
from polysweep.trainer.passes import LossAndGrad


class SGD(Optimizer):
    r"""Stochastic gradient descent: one evaluation a step, at x.

        s = 0
        d = grad f(x)

    With the scheduler `polyak` it is SPS_max of Loizou et al. 2021. Weight decay is coupled in `sgd`, as in
    torch.optim.SGD, and decoupled in `sgdw`: without momentum both are one rule.
    """

    is_perturbed = False


class SharpnessAware(Optimizer):
    r"""USAM and SAM, the rows of one family.

        s = rho_t grad f(x)                      (USAM)
        s = rho_t grad f(x) / ||grad f(x)||      (SAM; 0 where the gradient is 0)
        d = grad f(x + s)

    rho_t is rho / (t + 1)^p with p = 0, 1/2 or 1 by `rho_schedule`, or what the row's scheduler fixes. Weight decay
    enters neither s nor the numerator of the Polyak step size. Source: eqs. (USAM) and (SAM) of the paper's
    introduction, Algorithm 1, and the published package `sam-sps`.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._rho = torch.tensor([config.rho or 0.0 for config in configs], **self.factory_kwargs)
        self._power = torch.tensor([decay_power(config) for config in configs], **self.factory_kwargs)
        self._is_sam = torch.tensor([config.optimizer == "sam" for config in configs], device=device)
        self._has_sam = any(config.optimizer == "sam" for config in configs)
        self._has_decay = any(decay_power(config) for config in configs)

    def perturbation(self, at_x: LossAndGrad, state: State, t: Tensor) -> tuple[Tensor, State]:
        """See the class."""
        factor = rho = self.scheduled_radius(t, self._radius(t))
        if self._has_sam:
            by_length = torch.where(at_x.norm > 0, rho / at_x.norm, 0.0)
            factor = torch.where(self._is_sam, by_length, rho)
        return factor.unsqueeze(1) * at_x.grad, state

    def _radius(self, t: Tensor) -> Tensor:
        """rho / (t + 1)^p, (K,)."""
        if not self._has_decay:
            return self._rho
        return torch.where(self._power > 0, self._rho / (t.to(self._rho.dtype) + 1.0) ** self._power, self._rho)


def decay_power(config: TrialConfig) -> float:
    """p of rho_t = rho / (t + 1)^p."""
    return {"constant": 0.0, "inverse_sqrt": 0.5, "inverse": 1.0}[config.rho_schedule or "constant"]
