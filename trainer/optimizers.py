"""Optimizers of a stack: each proposes the next rows from gradients that an oracle evaluates.

Notation of the paper: x is the current row of theta, e = x + ascent the perturbed point, f the mini-batch loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from trainer.config import TrialConfig
from trainer.schedulers import Gamma, StepSizes


class Pass(NamedTuple):
    """One forward and backward pass: `loss` (K,), `grad` (K, P), `logits` (K, b, classes)."""

    loss: Tensor
    grad: Tensor
    logits: Tensor


Oracle = Callable[[Tensor], Pass]


class Proposal(NamedTuple):
    """The next rows (K, P), the next momentum (K, P) or None, and what the step saw at x and at e."""

    theta: Tensor
    velocity: Tensor | None
    x: Pass
    e: Pass
    norm_x: Tensor  # ||grad f(x)||, (K,)
    norm_e: Tensor  # ||grad f(e)||, (K,)
    gamma: Gamma


class Optimizer(Protocol):
    """A family of update rules whose rows can share a stack."""

    def __init__(
        self, configs: Sequence[TrialConfig], step_sizes: StepSizes, device: torch.device, dtype: torch.dtype
    ) -> None: ...

    def propose(self, oracle: Oracle, theta: Tensor, velocity: Tensor | None, step: int) -> Proposal:
        """The update of step t = 0, 1, ...; evaluates the oracle once or twice and changes nothing."""
        ...


class Descent:
    """The descent step that the families share: weight decay and heavy-ball momentum act here only.

    direction = grad + weight_decay * theta; velocity = momentum * velocity + direction; theta - gamma * velocity.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._weight_decay = torch.tensor([[c.weight_decay] for c in configs], **place)
        self._momentum = torch.tensor([[c.momentum or 0.0] for c in configs], **place)

    def __call__(
        self, theta: Tensor, velocity: Tensor | None, grad: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        direction = grad + self._weight_decay * theta
        if velocity is not None:
            # A row without momentum takes the direction itself, so its bits do not depend on its neighbours.
            velocity = torch.where(self._momentum > 0, self._momentum * velocity + direction, direction)
            direction = velocity
        return theta - gamma.unsqueeze(1) * direction, velocity


class SGD:
    """Stochastic gradient descent: x - gamma (grad f(x) + weight_decay x). With `polyak` it is SPS_max."""

    def __init__(
        self, configs: Sequence[TrialConfig], step_sizes: StepSizes, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._descend = Descent(configs, device, dtype)
        self._step_sizes = step_sizes

    def propose(self, oracle: Oracle, theta: Tensor, velocity: Tensor | None, step: int) -> Proposal:  # noqa: ARG002
        """One pass at x; e = x."""
        x = oracle(theta)
        gamma = self._step_sizes(x.loss, x.grad, torch.zeros_like(x.grad))
        new, velocity = self._descend(theta, velocity, x.grad, gamma.value)
        norm = torch.linalg.vecdot(x.grad, x.grad).sqrt()
        return Proposal(new, velocity, x, x, norm, norm, gamma)


class SharpnessAware:
    r"""USAM and SAM, the rows of one family.

        e = x + rho_t grad f(x)                      (USAM)
        e = x + rho_t grad f(x) / ||grad f(x)||      (SAM; e = x where the gradient is zero)
        x - gamma (grad f(e) + weight_decay x)

    Weight decay enters neither the perturbation nor the Polyak numerator. Source: eqs. (USAM) and (SAM) of the
    paper's introduction, Algorithm 1, and the published package `sam-sps`.
    """

    def __init__(
        self, configs: Sequence[TrialConfig], step_sizes: StepSizes, device: torch.device, dtype: torch.dtype
    ) -> None:
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._descend = Descent(configs, device, dtype)
        self._step_sizes = step_sizes
        self._rho = torch.tensor([c.rho or 0.0 for c in configs], **place)
        self._normalised = torch.tensor([c.optimizer == "sam" for c in configs], device=device)
        powers = {"constant": 0.0, "inverse_sqrt": 0.5, "inverse": 1.0}
        self._decay = torch.tensor([powers[c.rho_schedule or "constant"] for c in configs], **place)
        self._decays = any(c.rho_schedule != "constant" for c in configs)

    def propose(self, oracle: Oracle, theta: Tensor, velocity: Tensor | None, step: int) -> Proposal:
        """A pass at x, a pass at e."""
        x = oracle(theta)
        norm = torch.linalg.vecdot(x.grad, x.grad).sqrt()
        ascent = self._scale(norm, step).unsqueeze(1) * x.grad
        e = oracle(theta + ascent)
        gamma = self._step_sizes(e.loss, e.grad, ascent)
        new, velocity = self._descend(theta, velocity, e.grad, gamma.value)
        norm_e = torch.linalg.vecdot(e.grad, e.grad).sqrt()
        return Proposal(new, velocity, x, e, norm, norm_e, gamma)

    def _scale(self, norm: Tensor, step: int) -> Tensor:
        """What the gradient at x is multiplied by: (K,)."""
        rho = self._rho
        if self._decays:
            rho = torch.where(self._decay > 0, rho / (step + 1.0) ** self._decay, rho)
        by_length = torch.where(norm > 0, rho / norm, torch.zeros_like(norm))
        return torch.where(self._normalised, by_length, rho)
