"""A stack: K trials of one signature as the rows of one matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polysweep.trainer.components.plugins import component
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.optimizers.optimizer import Optimizer, StepResult
from polysweep.trainer.passes import LossAndGrad, Weigh
from polysweep.trainer.schedulers.scheduler import Gamma, StepContext, StepSizes
from polysweep.trainer.task import DTYPES, Buffers, Rows, Task


class Step(NamedTuple):
    """One step: `updated` (K,) bool: the rows that it updated; the rest are frozen. `everyone`: known to be all."""

    result: StepResult
    updated: Tensor
    everyone: bool


class Stack:
    """K trials as one matrix `theta` (K, P).

    What a row becomes depends on its config, the device, the thread count and K; never on its neighbours. A row whose
    loss, gradient or update is not finite keeps its parameters and buffers from before the step and is frozen. `state`
    is what optimizer and schedulers remember, each tensor (K, ...).

    At K = 1 there is no vmap: the step costs what the plain module costs.
    """

    def __init__(self, configs: Sequence[TrialConfig], task: Task, device: torch.device | str = "cpu") -> None:
        first = configs[0]
        assert len({c.signature for c in configs}) == 1, "rows of one stack share their signature"
        self.configs = list(configs)
        self.device = torch.device(device)
        self.dtype = DTYPES[first.precision]
        self.task = task.to(self.device, self.dtype).for_rows(self.configs)
        factory_kwargs = {"device": self.device, "dtype": self.dtype}
        self._oracle, self._monitor = self.task.oracle_and_monitor(self.configs, factory_kwargs)
        self.theta, self.buffers = self._oracle.start()
        self.active = torch.ones(len(configs), dtype=torch.bool, device=self.device)
        self._asked: Tensor | None = None
        self._all_active = False
        steps_per_epoch, parameters = self.task.steps_per_epoch(first.batch_size), self.theta.shape[1]
        self.step_sizes = StepSizes(configs, self.device, self.dtype, steps_per_epoch, parameters)
        family = component("optimizer", first.optimizer).on(first.base).load()
        self._optimizer: Optimizer = family(configs, self.device, self.dtype)
        self._optimizer.scheduled_radius = self.step_sizes.radius
        self._optimizer.shapes = self._oracle.shapes
        self.runs_alone = getattr(self._optimizer, "runs_alone", False)
        # Elsewhere than on a CPU asking for a value is a sync, which a captured graph cannot do.
        self.may_ask = self._optimizer.may_ask = self.device.type == "cpu" or self.runs_alone
        # Clones: a checkpoint's rows are written into them, and a rule may begin two of them with one tensor.
        self.optimizer_state = {name: value.clone() for name, value in self._optimizer.init(self.theta).items()}
        self.scheduler_state = {name: value.clone() for name, value in self.step_sizes.init().items()}
        self.monitor_state = self._monitor.init(self.theta)
        for name, tensor in self.state.items():
            if tensor.shape[:1] != (self.width,):
                raise ValueError(f"state {name!r} has shape {tuple(tensor.shape)}; expected K = {self.width} first")

    @property
    def state(self) -> dict[str, Tensor]:
        """What optimizer, schedulers and monitor remember, each tensor (K, ...)."""
        return {
            **{f"{_OPTIMIZER}/{name}": value for name, value in self.optimizer_state.items()},
            **({_THEIRS: self._optimizer.save()} if self.runs_alone else {}),
            **self.scheduler_state,
            **{f"{_MONITOR}/{name}": value for name, value in self.monitor_state.items()},
        }

    @property
    def width(self) -> int:
        """K."""
        return len(self.configs)

    def step(self, images: Tensor, labels: Tensor, step: Tensor) -> Step:
        """Update all active rows on one mini-batch each: images (K, b, C, H, W), labels (K, b); `step` is t, ().

        No host sync: nothing here waits for the device.
        """
        self._oracle.begin(self.buffers, step)
        scheduler_state = self.scheduler_state

        def f(theta: Tensor, weigh: Weigh | None = None) -> LossAndGrad:
            return self._oracle.pass_at(theta, images, labels, weigh)

        def step_size(at_e: LossAndGrad, perturbation: Tensor, t: Tensor) -> Gamma:
            nonlocal scheduler_state
            context = StepContext(at_e, perturbation, t, self.theta)
            gamma, scheduler_state = self.step_sizes.gamma(context, scheduler_state)
            return gamma

        directions = 0

        def direction(d: Tensor) -> Tensor:
            nonlocal directions
            directions += 1
            return self.step_sizes.direction(d, scheduler_state)

        self._optimizer.scheduled_direction = direction
        result = self._optimizer.update(f, step_size, self.theta, self.optimizer_state, step)
        if self.step_sizes.of_direction and not directions:
            self._refuse_direction()
        buffers = self._oracle.statistics()
        updated, everyone = self._finite(result)
        monitor_state = self._monitor.after(self.monitor_state, self.theta, result, labels, step)
        if everyone:
            self.theta, self.buffers = result.theta, buffers
            self.optimizer_state, self.scheduler_state = dict(result.state), scheduler_state
            self.monitor_state = dict(monitor_state)
        else:
            self.theta = _where(updated, result.theta, self.theta)
            self.buffers = Buffers(
                _where(updated, buffers.floats, self.buffers.floats),
                _where(updated, buffers.counters, self.buffers.counters),
            )
            self.optimizer_state = _where_named(updated, result.state, self.optimizer_state)
            self.scheduler_state = _where_named(updated, scheduler_state, self.scheduler_state)
            self.monitor_state = _where_named(updated, monitor_state, self.monitor_state)
        self.active = updated
        return Step(result, updated, everyone)

    def _finite(self, result: StepResult) -> tuple[Tensor, bool]:
        """The rows that go on, (K,), and whether they are known to be all of them."""
        # A sum is finite only if every summand is.
        total = result.theta.sum(1)
        for summand in (*result.x.finite_if_sound, *result.e.finite_if_sound):
            total = total + summand
        if self.may_ask and self.are_all_active() and math.isfinite(total.sum().item()):
            return self.active, True
        return self.active & torch.isfinite(total), False

    def _refuse_direction(self) -> None:
        """Raise `ConfigError`: an optimizer's own `update` has taken a step beside the direction of a scheduler."""
        names = ", ".join(map(repr, self.step_sizes.of_direction))
        optimizer = self.configs[0].optimizer
        raise ConfigError(
            "scheduler",
            f"{names} chooses the direction, but update() of optimizer {optimizer!r} does not step by descend(); "
            "take another scheduler, or call descend() there",
        )

    def are_all_active(self) -> bool:
        """Asked of a tensor once: `active` is replaced, and never written into but by a captured graph."""
        if self._asked is not self.active:
            self._asked, self._all_active = self.active, bool(self.active.all())
        return self._all_active

    def run_captured(self) -> None:
        """Work as a captured graph from now on: nothing asks for a value, and tensors are written into."""
        self.may_ask = self._optimizer.may_ask = False
        self._monitor.run_captured()

    def measure(self, step: int) -> Mapping[str, Tensor]:
        """What is measured after `step` steps: by history column values (K,), NaN for what is undefined.

        Rows that do not survive it are frozen.
        """
        rows = Rows(self.theta, self.buffers)
        measurement = self._monitor.measure(self.monitor_state, rows, self.active, step)
        if self.may_ask:
            self.monitor_state = dict(measurement.state)
            self.active = self.active & measurement.survives
        else:  # a captured graph goes on writing into the same tensors
            for name, tensor in self.monitor_state.items():
                tensor.copy_(measurement.state[name])
            self.active &= measurement.survives
        return measurement.columns

    def tensors(self) -> list[Tensor]:
        """Everything that a step replaces, in the order of `put`."""
        return [self.theta, self.buffers.floats, self.buffers.counters, self.active, *self.state.values()]

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Go on from these."""
        self.theta, floats, counters, self.active, *state = tensors
        self.buffers = Buffers(floats, counters)
        rest = iter(state)
        for part in (self.optimizer_state, self.scheduler_state, self.monitor_state):
            part.update(zip(part, rest, strict=False))

    def row_state(self, row: int, tensors: Sequence[Tensor] | None = None) -> dict[str, Tensor]:
        """Views of one row's parameters, buffers, optimizer and scheduler state, for its checkpoint.

        `tensors` are those of `tensors()` at some earlier time, by default of now.
        """
        theta, floats, counters, _, *state = tensors or self.tensors()
        kept = (*_INTERNAL, f"{self.configs[row].scheduler}/")
        return {
            "theta": theta[row],
            "floats": floats[row],
            "counters": counters[row],
            **{name: tensor[row] for name, tensor in zip(self.state, state, strict=True) if name.startswith(kept)},
        }

    def load_row(self, row: int, state: Mapping[str, Any]) -> None:
        """Put `row_state` back.

        Raises `ValueError` if a tensor is missing that the row's own optimizer or scheduler remembers now: it is
        another version of it that made the checkpoint.
        """
        self.theta[row] = state["theta"]
        self.buffers.floats[row] = state["floats"]
        self.buffers.counters[row] = state["counters"]
        config = self.configs[row]
        for name, tensor in self.state.items():
            if name in state and name == _THEIRS:
                self._optimizer.load(state[name])
            elif name in state:
                tensor[row] = state[name]
            elif name == f"{_OPTIMIZER}/velocity" and not config.momentum:
                continue  # it had no neighbour with momentum
            elif name == f"{_MONITOR}/lemmas":
                continue  # of an older version, which did not count them: counted from here on
            elif name.startswith((*_INTERNAL, f"{config.scheduler}/")):
                raise ValueError(f"the checkpoint of {config.trial_id} lacks the state {name!r}: raise a version?")


_OPTIMIZER, _MONITOR = ":optimizer", ":monitor"  # no scheduler's name begins like that
_THEIRS = f"{_OPTIMIZER}/theirs"  # of an optimizer that runs alone and keeps its state itself
_INTERNAL = (f"{_OPTIMIZER}/", f"{_MONITOR}/")


def _where(updated: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """New rows where they count, old ones elsewhere: (K,), (K, ...), (K, ...)."""
    return torch.where(updated.view(-1, *[1] * (new.dim() - 1)), new, old)


def _where_named(updated: Tensor, new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`_where` of every tensor of a state."""
    return {name: _where(updated, new[name], tensor) for name, tensor in old.items()}
