"""The template of an optimizer: perturb, look, step.

Notation of the paper: x is the current row of theta, f the loss of the mini-batch, s = e - x the perturbation and e the
perturbed point. Everything is done for the K rows of a stack at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.passes import LossAndGrad, Weigh
from polysweep.trainer.schedulers.scheduler import Gamma

State = Mapping[str, Tensor]


class Objective(Protocol):
    """f: loss and gradient of the mini-batch at rows (K, P), of its samples' mean, or with the weights of `weigh`."""

    def __call__(self, theta: Tensor, /, weigh: Weigh | None = None) -> LossAndGrad:
        """f(theta)."""


StepSize = Callable[[LossAndGrad, Tensor, Tensor], Gamma]
"""gamma (K,) from loss and gradient at e, the perturbation s (K, P) and the step t (); called once in a step."""

Radius = Callable[[Tensor, Tensor], Tensor]
"""rho_t (K,) from the step t () and the radius (K,) that the configs ask for."""

Direction = Callable[[Tensor], Tensor]
"""What is followed, (K, P), from the rule's d (K, P)."""


Shapes = Callable[[], Sequence[torch.Size]]
"""The shapes of the parameters that a row is made of, in its order."""


class StepResult(NamedTuple):
    """The rows (K, P) and the state after a step, loss and gradient at x and at e, and the step sizes."""

    theta: Tensor
    state: State
    x: LossAndGrad
    e: LossAndGrad
    gamma: Gamma


class Optimizer:
    r"""A family of update rules whose rows can share a stack.

        e = x + s                    s by `perturbation`
        d + weight_decay x           d by `direction`, or by a scheduler that averages; weight decay where it is coupled
        v = momentum v + that        by `base_step`
        x - gamma v                  gamma by the scheduler
        x - gamma (v + weight_decay x)                     where weight decay is decoupled, see `is_decoupled`

    A rule is a subclass that writes `perturbation` and `direction`, and `init` where it keeps a state; one that does
    not fit this template writes `update`. None of them may ask for a value: a step must not wait for the device.
    `factory_kwargs` are device and dtype of new tensors.
    """

    runs_alone: ClassVar[bool] = False  # True: K = 1, no captured graph, and its state is what `save` and `load` know
    is_perturbed: ClassVar[bool] = True  # False: e = x always, and the gradient at x is used for both

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        self.configs = configs
        self.factory_kwargs: dict[str, Any] = {"device": device, "dtype": dtype}
        self.shapes: Shapes = list  # the stack puts those of the model's parameters here
        self.may_ask = False  # whether a value may be asked for, as on a CPU: the stack says so
        self.scheduled_radius: Radius = lambda t, rho: rho  # noqa: ARG005  # the stack puts its schedulers' here
        self.scheduled_direction: Direction = lambda d: d  # and this, in every step
        self._coupled = self.column([0.0 if is_decoupled(config) else config.weight_decay for config in configs])
        self._decoupled = self.column([config.weight_decay if is_decoupled(config) else 0.0 for config in configs])
        self._momentum = self.column([config.momentum or 0.0 for config in configs])
        self._has_coupled = any(config.weight_decay and not is_decoupled(config) for config in configs)
        self._has_decoupled = any(config.weight_decay and is_decoupled(config) for config in configs)
        self._has_momentum = any(config.momentum for config in configs)

    def save(self) -> Tensor:
        """Of a rule that runs alone: its state now, (1, ...), as a checkpoint keeps it."""
        raise NotImplementedError

    def load(self, saved: Tensor) -> None:
        """Of a rule that runs alone: go on from a row of what `save` returned."""
        raise NotImplementedError

    def column(self, values: Sequence[float]) -> Tensor:
        """One number of every row, as (K, 1)."""
        return torch.tensor(values, **self.factory_kwargs).unsqueeze(1)

    def option(self, name: str) -> Tensor:
        """A number of every row's `optimizer_options`, as (K, 1)."""
        numbers: list[Any] = [config.optimizer_options[name] for config in self.configs]
        return self.column([float(number) for number in numbers])

    def init(self, theta: Tensor) -> State:
        """The state before step 0 for rows (K, P): by name, tensors (K, ...) that a trial's checkpoint keeps."""
        return {"velocity": torch.zeros_like(theta)} if self._has_momentum else {}

    def perturbation(self, at_x: LossAndGrad, state: State, t: Tensor) -> tuple[Tensor, State]:  # noqa: ARG002
        """s = e - x (K, P), and the next state; here 0."""
        return torch.zeros_like(at_x.grad), state

    def direction(self, at_e: LossAndGrad, state: State) -> tuple[Tensor, State]:
        """d (K, P), before weight decay and momentum, and the next state; here the gradient at e."""
        return at_e.grad, state

    def update(self, f: Objective, step_size: StepSize, x: Tensor, state: State, t: Tensor) -> StepResult:
        """Step t = 0, 1, ..., a tensor (), of rows x (K, P); evaluates f and changes nothing."""
        at_x = f(x)
        s, state = self.perturbation(at_x, state, t)
        at_e = f(x + s) if self.is_perturbed else at_x
        gamma = step_size(at_e, s, t)
        d, state = self.direction(at_e, state)
        x, state = self.descend(x, d, gamma, state)
        return StepResult(x, state, at_x, at_e, gamma)

    def descend(self, x: Tensor, d: Tensor, gamma: Gamma, state: State) -> tuple[Tensor, State]:
        """The rows (K, P) after the step along d with its weight decay, see the class, and the next state."""
        d = self.scheduled_direction(d)
        if self._has_coupled:
            d = d + self._coupled * x
        v, state = self.base_step(d, state)
        if self._has_decoupled:
            v = v + self._decoupled * x
        return self.move(x, v, gamma), state

    def base_step(self, d: Tensor, state: State) -> tuple[Tensor, State]:
        """v (K, P) from d, and the next state; here v = momentum v + d, as torch.optim.SGD."""
        if not self._has_momentum:
            return d, state
        # A row without momentum takes d itself, so that its bits do not depend on its neighbours.
        v = torch.where(self._momentum > 0, self._momentum * state["velocity"] + d, d)
        return v, {**state, "velocity": v}

    def move(self, x: Tensor, v: Tensor, gamma: Gamma) -> Tensor:
        """x - gamma v, (K, P)."""
        return x - gamma.value.unsqueeze(1) * v


def is_decoupled(config: TrialConfig) -> bool:
    """Whether weight decay is apart from the gradient, after Loshchilov and Hutter 2019 (arXiv 1711.05101)."""
    return (config.base or config.optimizer) in ("sgdw", "adamw")


def along_gradient(at_x: LossAndGrad, length: Tensor) -> Tensor:
    """length grad f(x) / ||grad f(x)|| with length (K, 1), and 0 where the gradient is 0: (K, P)."""
    norm = at_x.norm.unsqueeze(1)
    return torch.where(norm > 0, length / norm, 0.0) * at_x.grad
