"""Optimizers of a stack: each proposes the next rows from gradients that an oracle evaluates.

Notation of the paper: x is the current row of theta, e = x + ascent the perturbed point, f the mini-batch loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.scheduler import Gamma

State = Mapping[str, Tensor]


Oracle = Callable[[Tensor], LossAndGrad]
"""Evaluates the mini-batch at rows (K, P)."""


StepSize = Callable[[LossAndGrad, Tensor], Gamma]
"""The rows' step sizes (K,) from the pass at e and the ascent e - x (K, P); to be called once in a step."""


class StepResult(NamedTuple):
    """The next rows (K, P), the next state, and what the step saw: the passes at x and at e, the step sizes."""

    theta: Tensor
    state: State
    x: LossAndGrad
    e: LossAndGrad
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
    def propose(self, oracle: Oracle, step_size: StepSize, theta: Tensor, state: State, step: Tensor) -> StepResult:
        """The update of step t = 0, 1, ..., a tensor (); evaluates the oracle and changes nothing."""
