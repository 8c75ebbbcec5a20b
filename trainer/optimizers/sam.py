"""Optimizers of a stack: each proposes the next rows from gradients that an oracle evaluates.

Notation of the paper: x is the current row of theta, e = x + ascent the perturbed point, f the mini-batch loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.baseline_schedulers import Decreasing, published_radius
from polysweep.trainer.optimizers.optimizer import Optimizer, Oracle, State, StepResult, StepSize


class SGD(Optimizer):
    """Stochastic gradient descent: x - gamma (grad f(x) + weight_decay x). With `polyak` it is SPS_max."""

    def propose(
        self,
        oracle: Oracle,
        step_size: StepSize,
        theta: Tensor,
        state: State,
        step: Tensor,  # noqa: ARG002
    ) -> StepResult:
        """One pass at x; e = x."""
        x = oracle(theta)
        gamma = step_size(x, torch.zeros_like(x.grad))
        new, state = self.descend(theta, state, x.grad, gamma)
        return StepResult(new, state, x, x, gamma)


def decay_power(config: TrialConfig) -> float:
    """p of rho_t = rho / (t + 1)^p."""
    return {"constant": 0.0, "inverse_sqrt": 0.5, "inverse": 1.0}[config.rho_schedule or "constant"]


class SharpnessAware(Optimizer):
    r"""USAM and SAM, the rows of one family.

        e = x + rho_t grad f(x)                      (USAM)
        e = x + rho_t grad f(x) / ||grad f(x)||      (SAM; e = x where the gradient is zero)
        x - gamma (grad f(e) + weight_decay x)

    rho_t is rho, rho / sqrt(t + 1) or rho / (t + 1) by `rho_schedule`, or what a published baseline fixes. Weight decay
    enters neither the perturbation nor the Polyak numerator. Source: eqs. (USAM) and (SAM) of the paper's introduction,
    Algorithm 1, and the published package `sam-sps`.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._rho = torch.tensor([published_radius(c) if c.rho is None else c.rho for c in configs], **self.place)
        self._normalised = torch.tensor([c.optimizer == "sam" for c in configs], device=device)
        self._normalises = any(c.optimizer == "sam" for c in configs)
        self._decay = torch.tensor([decay_power(c) for c in configs], **self.place)
        self._decays = any(decay_power(c) for c in configs)
        self._follows = Decreasing.of(configs, device, dtype)

    def propose(self, oracle: Oracle, step_size: StepSize, theta: Tensor, state: State, step: Tensor) -> StepResult:
        """A pass at x, a pass at e."""
        x = oracle(theta)
        ascent = self._scale(x.norm, step).unsqueeze(1) * x.grad
        e = oracle(theta + ascent)
        gamma = step_size(e, ascent)
        new, state = self.descend(theta, state, e.grad, gamma)
        return StepResult(new, state, x, e, gamma)

    def _scale(self, norm: Tensor, step: Tensor) -> Tensor:
        """What the gradient at x is multiplied by: (K,)."""
        rho = self._rho
        if self._decays:
            rho = torch.where(self._decay > 0, rho / (step.to(rho.dtype) + 1.0) ** self._decay, rho)
        if self._follows is not None:
            rho = self._follows.radius(step, rho)
        if not self._normalises:
            return rho
        by_length = torch.where(norm > 0, rho / norm, torch.zeros_like(norm))
        return torch.where(self._normalised, by_length, rho)
