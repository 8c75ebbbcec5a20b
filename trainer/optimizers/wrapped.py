"""Training with a class in the style of torch.optim, as it is: one row, its own tensors, its own state."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from polysweep.trainer.components.registry import OWN_STEP_SIZE
from polysweep.trainer.components.wrapping import Wrapping, wrapping_of
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.optimizers.optimizer import Objective, Optimizer, State, StepResult, StepSize
from polysweep.trainer.optimizers.their_state import groups_of, memory, recall
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.scheduler import Gamma


def adapted(part: Any) -> Callable[..., Wrapped]:
    """What is called like a class of optimizers, for a part that `wrapping_of` knows."""
    wrapping = wrapping_of(part)
    assert wrapping is not None, "the component sees to it"
    return partial(Wrapped, wrapping)


class Wrapped(Optimizer):
    """A class that updates the parameters of one model in place: K = 1, and never a captured graph.

    A step gives it the gradient at x, and the gradient at any other point at which it asks for one; the first of its
    evaluations is reported as x, the last as e. gamma is the scheduler's, which is written into its `param_groups`;
    with the scheduler `own`, it is the `lr` that it leaves there, NaN if there is none.
    """

    runs_alone: ClassVar[bool] = True

    def __init__(
        self, wrapping: Wrapping, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(configs, device, dtype)
        (self.config,) = configs  # `trainer.rehearsal.refusal` sees to it
        self.wrapping = wrapping

    def init(self, theta: Tensor) -> State:
        """Build it around parameters of the model's shapes; its state is kept by `save`."""
        sizes = [shape.numel() for shape in self.shapes()]
        parts = zip(theta[0].clone().split(sizes), self.shapes(), strict=True)
        self.parameters = [nn.Parameter(part.view(shape).clone()) for part, shape in parts]
        self.sizes = sizes
        try:
            self.theirs = self.wrapping.optimizer(self.parameters, **self.arguments())
        except (TypeError, ValueError, AssertionError) as error:
            raise ConfigError("optimizer", f"{self.wrapping.name} cannot be made: {error}") from None
        return {}

    def arguments(self) -> dict[str, Any]:
        """What its constructor is called with, besides the parameters."""
        fields = {argument: getattr(self.config, name) for name, argument in self.wrapping.by_field.items()}
        entries = self.wrapping.options.model_fields
        options = {
            name: value
            for name, value in self.config.optimizer_options.items()
            if entries[name].is_required() or value != entries[name].default
        }
        return {**self.wrapping.fixed, **fields, **options}

    def update(self, f: Objective, step_size: StepSize, x: Tensor, state: State, t: Tensor) -> StepResult:
        """See the class."""
        self.put(x)
        at_x = f(x)
        scheduled = None
        if self.config.scheduler != OWN_STEP_SIZE:
            scheduled = step_size(at_x, torch.zeros_like(x), t)
            for group in groups_of(self.theirs):
                group["lr"] = scheduled.value.item()
        passes = Passes(f, at_x, x, self.parameters)
        self.step(passes)
        new_x = flat(self.parameters)
        return StepResult(new_x, state, at_x, passes.last, scheduled or self.step_size_taken(x))

    def step(self, passes: Passes) -> None:
        """Call it as `Wrapping.call` says."""
        theirs, call = self.theirs, self.wrapping.call
        loss = passes.backward()
        if call == "closure":
            theirs.step(passes.backward)
        elif call == "two steps":
            theirs.first_step(zero_grad=True)
            passes.backward()
            theirs.second_step(zero_grad=True)
        elif call == "loss":
            closure = {"closure": passes.backward} if "closure" in self.wrapping.step_needs else {}
            theirs.step(loss=loss, **closure)
        else:
            theirs.step()

    def step_size_taken(self, x: Tensor) -> Gamma:
        """The `lr` of its first group, and whether that is `gamma_b`, NaN if it has none, or 0: (1,) each."""
        lr = next((float(group["lr"]) for group in groups_of(self.theirs) if "lr" in group), math.nan)
        cap = self.config.gamma_b
        value = x.new_full((1,), lr)
        return Gamma(value, x.new_full((1,), math.nan) if cap is None else value >= cap, value == 0)

    def put(self, x: Tensor) -> None:
        """Write a row (1, P) into its parameters."""
        with torch.no_grad():
            for parameter, part in zip(self.parameters, x[0].split(self.sizes), strict=True):
                parameter.copy_(part.view_as(parameter))

    def save(self) -> Tensor:
        """Its state, (1, n): bytes of a file that loads with `weights_only`. Raises `ConfigError` if none can be."""
        buffer = io.BytesIO()
        torch.save(memory(self.theirs, self.parameters), buffer)
        return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8).unsqueeze(0)

    def load(self, saved: Tensor) -> None:
        """Go on from what `save` returned."""

        def place(storage: Any, location: str) -> Any:
            on_cpu = location == "cpu" or self.parameters[0].device.type == "cpu"  # step counts are there on a GPU too
            return storage if on_cpu else storage.cuda(self.parameters[0].device.index)

        content = torch.load(io.BytesIO(saved.cpu().numpy().tobytes()), map_location=place, weights_only=True)
        recall(self.theirs, content, self.parameters)


class Passes:
    """The evaluations of one step. `last` is the pass of the latest one."""

    def __init__(self, f: Objective, at_x: LossAndGrad, x: Tensor, parameters: Sequence[nn.Parameter]) -> None:
        self._f, self._at_x, self._x, self._parameters = f, at_x, x, parameters
        self.last = at_x

    @torch.enable_grad()
    def backward(self) -> Tensor:
        """Evaluate the mini-batch where the parameters are: their gradients are set; the loss is returned, ()."""
        theta = flat(self._parameters)
        self.last = self._at_x if torch.equal(theta, self._x) else self._f(theta)
        gradients = self.last.grad[0].split([parameter.numel() for parameter in self._parameters])
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient.view_as(parameter).clone()  # it may write into it
        return self.last.loss[0]


def flat(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The parameters as one row (1, P)."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters]).unsqueeze(0)
