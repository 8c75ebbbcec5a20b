"""Optimizers as other people write them: each in one of the styles that are wrapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polysweep import wrap


class TwoSteps(torch.optim.Optimizer):
    """SAM with an optimizer inside, which has a state of its own and shares the groups."""

    def __init__(
        self, params: Any, base_optimizer: Any, rho: float = 0.05, adaptive: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(params, {"rho": rho, "adaptive": adaptive, **kwargs})
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self, zero_grad: bool = False) -> None:
        grads = [p.grad.norm() for group in self.param_groups for p in group["params"] if p.grad is not None]
        for group in self.param_groups:
            scale = group["rho"] / torch.stack(grads).norm()
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * scale)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad: bool = False) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]  # another tensor than before
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure: Callable[[], Tensor] | None = None) -> None:  # noqa: ARG002
        raise AssertionError("it is to be called in two steps")


class Slowing(torch.optim.Optimizer):
    """A step size that falls with a count in an attribute; it writes into the gradient."""

    def __init__(
        self, params: Any, start: float, weight_decay: float = 0.0, powers: tuple[float, ...] = (0.5,)
    ) -> None:
        super().__init__(params, {"lr": start, "weight_decay": weight_decay})
        self.start, self.powers, self.count = start, powers, 0

    @torch.no_grad()
    def step(self, loss: Tensor, closure: Callable[[], Tensor]) -> None:
        self.count += 1
        assert closure() == loss
        for group in self.param_groups:
            group["lr"] = self.start / self.count ** sum(self.powers)
            for p in group["params"]:
                p.grad.add_(p, alpha=group["weight_decay"])
                p.sub_(p.grad, alpha=group["lr"])


class Nameless:
    """No torch class: neither `lr` nor groups; a step size of its own."""

    def __init__(self, params: Any, speed: int = 1) -> None:
        self.params, self.speed = list(params), speed

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None

    def step(self, closure: Any = None) -> None:  # noqa: ARG002
        with torch.no_grad():
            for p in self.params:
                p.sub_(p.grad, alpha=0.1 * self.speed)


class Keeps(torch.optim.SGD):
    """Keeps a thing that no checkpoint can hold."""

    def step(self, closure: Any = None) -> None:  # noqa: ARG002
        self.state["thing"] = object()


class Asks(torch.optim.SGD):
    """Its step wants something else."""

    def step(self, batch: Any) -> None: ...


class Fails(torch.optim.SGD):
    """Its constructor refuses every value."""

    def __init__(self, params: Any, lr: float) -> None:  # noqa: ARG002
        raise ValueError(f"no lr is good, {lr} neither")


class Modes(torch.optim.SGD):
    """Evaluates other weights than it trains."""

    def train(self) -> None: ...

    def eval(self) -> None: ...


def of_a_model(model: Any, rho: float) -> None: ...


def stepless(params: Any) -> None: ...


SAM = wrap(TwoSteps, base_optimizer=torch.optim.SGD)
SAM_ADAMW = wrap(TwoSteps, base_optimizer=torch.optim.AdamW)
PLAIN = wrap(Nameless)
CLOSURE_SGD = wrap(torch.optim.SGD, call="closure", version=3)
RENAMED = wrap(Slowing, fields={"gamma_b": "start"})
WRONG_FIELD = wrap(Slowing, fields={"gama": "start"})
WRONG_ARGUMENT = wrap(Slowing, fields={"rho": "radius"})
