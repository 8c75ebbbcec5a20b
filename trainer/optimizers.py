"""Optimizers of a stack: each proposes the next rows from gradients that an oracle evaluates.

Notation of the paper: x is the current row of theta, e = x + ascent the perturbed point, f the mini-batch loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.config import TrialConfig
from trainer.passes import Pass
from trainer.schedulers import Decreasing, Gamma, published_radius

State = Mapping[str, Tensor]


Oracle = Callable[[Tensor], Pass]
"""Evaluates the mini-batch at rows (K, P)."""

StepSize = Callable[[Pass, Tensor], Gamma]
"""The rows' step sizes (K,) from the pass at e and the ascent e - x (K, P); to be called once in a step."""


class Proposal(NamedTuple):
    """The next rows (K, P), the next state, and what the step saw: the passes at x and at e, the step sizes."""

    theta: Tensor
    state: State
    x: Pass
    e: Pass
    gamma: Gamma


class Descent:
    """The descent step that the families share: weight decay and heavy-ball momentum act here only.

    direction = grad + weight_decay * theta; velocity = momentum * velocity + direction; theta - gamma * velocity.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._weight_decay = torch.tensor([[c.weight_decay] for c in configs], **place)
        self._decays = any(c.weight_decay for c in configs)
        self._momentum = torch.tensor([[c.momentum or 0.0] for c in configs], **place)
        self._has_momentum = any(c.momentum for c in configs)

    def initial(self, theta: Tensor) -> State:
        """The velocity, where a row has momentum."""
        return {"velocity": torch.zeros_like(theta)} if self._has_momentum else {}

    def __call__(self, theta: Tensor, state: State, grad: Tensor, gamma: Gamma) -> tuple[Tensor, State]:
        direction = grad + self._weight_decay * theta if self._decays else grad
        if self._has_momentum:
            # A row without momentum takes the direction itself, so its bits do not depend on its neighbours.
            velocity = self._momentum * state["velocity"] + direction
            direction = torch.where(self._momentum > 0, velocity, direction)
            state = {"velocity": direction}
        return theta - gamma.value.unsqueeze(1) * direction, state


class Optimizer(ABC):
    """A family of update rules whose rows can share a stack. Subclass it and write `propose`.

    Nothing in a step may ask for a value. `descend` is the step with weight decay and momentum.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        self.place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.descend = Descent(configs, device, dtype)

    def initial(self, theta: Tensor) -> State:
        """What is remembered from step to step, by name, each tensor (K, ...): kept in every row's checkpoint."""
        return self.descend.initial(theta)

    @abstractmethod
    def propose(self, oracle: Oracle, step_size: StepSize, theta: Tensor, state: State, step: Tensor) -> Proposal:
        """The update of step t = 0, 1, ..., a tensor (); evaluates the oracle and changes nothing."""


class SGD(Optimizer):
    """Stochastic gradient descent: x - gamma (grad f(x) + weight_decay x). With `polyak` it is SPS_max."""

    def propose(
        self,
        oracle: Oracle,
        step_size: StepSize,
        theta: Tensor,
        state: State,
        step: Tensor,  # noqa: ARG002
    ) -> Proposal:
        """One pass at x; e = x."""
        x = oracle(theta)
        gamma = step_size(x, torch.zeros_like(x.grad))
        new, state = self.descend(theta, state, x.grad, gamma)
        return Proposal(new, state, x, x, gamma)


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

    def propose(self, oracle: Oracle, step_size: StepSize, theta: Tensor, state: State, step: Tensor) -> Proposal:
        """A pass at x, a pass at e."""
        x = oracle(theta)
        ascent = self._scale(x.norm, step).unsqueeze(1) * x.grad
        e = oracle(theta + ascent)
        gamma = step_size(e, ascent)
        new, state = self.descend(theta, state, e.grad, gamma)
        return Proposal(new, state, x, e, gamma)

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
