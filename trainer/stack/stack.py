"""A stack: K trials of one signature as the rows of one matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from polysweep.trainer.components.plugins import component
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.task import Convex
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.history import PROBLEM_METRICS
from polysweep.trainer.optimizers.optimizer import Optimizer, StepResult
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.scheduler import Gamma, StepContext, StepSizes
from polysweep.trainer.stack.bfloat16 import use_bfloat16
from polysweep.trainer.stack.monitor import Monitor
from polysweep.trainer.stack.oracles import ByModule, ClosedForm, Oracles
from polysweep.trainer.stack.vmap import Buffers, flatten, make_engine
from polysweep.trainer.streams import stream_seed
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.loading import DTYPES, Task


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
        self.task = task.to(self.device, self.dtype)
        self.monitor: Monitor | None = None
        if isinstance(self.task, Convex):
            self._oracles: Oracles = ClosedForm(self.task)
            rows = [_Row(self.task.start(c.seed), torch.zeros(0), torch.zeros(0, dtype=torch.int64)) for c in configs]
            self.monitor = Monitor(configs, self.task, {"device": self.device, "dtype": self.dtype})
        else:
            module, rows = _initialise(self.configs, self.task, self.dtype)
            if first.precision == "bfloat16":
                use_bfloat16(module, f"model {first.model!r}", stacked=len(configs) > 1)
            # cuDNN has its float32 kernels for the contiguous layout, those of tensor cores for channels last.
            layout = self.device.type != "cuda" or first.precision in ("bfloat16", "tf32")
            engine = make_engine(module.to(self.device), len(configs), channels_last=layout)
            self._oracles = ByModule(engine, self.task, self.configs, self.device, self.dtype)
        self.theta = torch.stack([row.parameters for row in rows]).to(self.device)
        self.buffers = Buffers(
            torch.stack([row.floats for row in rows]).to(self.device),
            torch.stack([row.counters for row in rows]).to(self.device),
        )
        self.active = torch.ones(len(configs), dtype=torch.bool, device=self.device)
        self.may_ask = self.device.type == "cpu"  # elsewhere asking for a value is a sync; a captured graph cannot
        self._asked: Tensor | None = None
        self._all_active = False
        self.step_sizes = StepSizes(configs, self.device, self.dtype)
        family = component("optimizer", first.optimizer).load()
        self._optimizer: Optimizer = family(configs, self.device, self.dtype)
        self._optimizer.scheduled_radius = self.step_sizes.radius
        # Clones: a checkpoint's rows are written into them, and an optimizer may begin two of them with one tensor.
        self.optimizer_state = {name: value.clone() for name, value in self._optimizer.init(self.theta).items()}
        self.scheduler_state = self.step_sizes.init()
        self.monitor_state = {} if self.monitor is None else self.monitor.init(self.theta)
        for name, tensor in self.state.items():
            if tensor.shape[:1] != (self.width,):
                raise ValueError(f"state {name!r} has shape {tuple(tensor.shape)}; expected K = {self.width} first")

    @property
    def state(self) -> dict[str, Tensor]:
        """What optimizer, schedulers and monitor remember, each tensor (K, ...)."""
        return {
            **{f"{_OPTIMIZER}/{name}": value for name, value in self.optimizer_state.items()},
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
        self._oracles.begin(self.buffers)
        scheduler_state = self.scheduler_state

        def f(theta: Tensor) -> LossAndGrad:
            return self._oracles.pass_at(theta, images, labels)

        def step_size(at_e: LossAndGrad, perturbation: Tensor, t: Tensor) -> Gamma:
            nonlocal scheduler_state
            gamma, scheduler_state = self.step_sizes.gamma(StepContext(at_e, perturbation, t), scheduler_state)
            return gamma

        result = self._optimizer.update(f, step_size, self.theta, self.optimizer_state, step)
        buffers = self._oracles.statistics()
        updated, everyone = self._finite(result)
        monitor_state = self.monitor_state
        if self.monitor is not None:
            monitor_state = self.monitor.after(monitor_state, self.theta, result, labels, step)
        if everyone:
            self.theta, self.buffers = result.theta, buffers
            self.optimizer_state, self.scheduler_state = dict(result.state), scheduler_state
            self.monitor_state = monitor_state
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
        all_active = self.may_ask and self.are_all_active()
        # A sum is finite only if every summand is; of a convex task a gradient that is not makes the new row so.
        if all_active and self.monitor is not None and math.isfinite(result.theta.sum().item()):
            return self.active, True
        seen = result.theta.sum(1)
        if self.monitor is None:
            x, e = result.x, result.e
            seen = seen + x.loss + e.loss + x.norm + e.norm
            if all_active and math.isfinite(seen.sum().item()):
                return self.active, True
        return self.active & torch.isfinite(seen), False

    def are_all_active(self) -> bool:
        """Asked of a tensor once: `active` is replaced, and never written into but by a captured graph."""
        if self._asked is not self.active:
            self._asked, self._all_active = self.active, bool(self.active.all())
        return self._all_active

    def evaluate(self, images: Tensor) -> Tensor:
        """Logits (K, b, classes) of shared images (b, C, H, W), with running statistics; of no convex task."""
        assert isinstance(self._oracles, ByModule), "a convex task has no images"
        return self._oracles.evaluate(self.theta, self.buffers, images)

    def measure(self, step: int) -> dict[str, Tensor]:
        """Of a convex task the columns `PROBLEM_COLUMNS` after `step` steps, (K,) each; NaN for what is undefined."""
        assert self.monitor is not None, "only of a convex task"
        monitor_state = self.monitor.at_record(self.monitor_state, self.theta, self.active, step)
        found = self.monitor.measure(monitor_state, self.theta, step)
        if self.may_ask:
            self.monitor_state = monitor_state
        else:  # a captured graph goes on writing into the same tensors
            for name, tensor in self.monitor_state.items():
                tensor.copy_(monitor_state[name])
        # A row may be finite and so far off that f is not: it has diverged, and no table may average over it.
        measured = torch.stack([found[name] for name in PROBLEM_METRICS])
        self.freeze(measured.isfinite().all(0))
        return found

    def freeze(self, going: Tensor) -> None:
        """Rows that are not `going` (K,) bool count no further steps."""
        if self.may_ask:
            self.active = self.active & going
        else:  # a captured graph goes on writing into the same tensor
            self.active &= going

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

        Raises `ValueError` where a tensor is missing that the row's own optimizer or scheduler remembers now: it is
        another version of it that made the checkpoint.
        """
        self.theta[row] = state["theta"]
        self.buffers.floats[row] = state["floats"]
        self.buffers.counters[row] = state["counters"]
        config = self.configs[row]
        for name, tensor in self.state.items():
            if name in state:
                tensor[row] = state[name]
            elif name == f"{_OPTIMIZER}/velocity" and not config.momentum:
                continue  # it had no neighbour with momentum
            elif name == f"{_MONITOR}/lemmas":
                continue  # of an older version, which did not count them: counted from here on
            elif name.startswith((*_INTERNAL, f"{config.scheduler}/")):
                raise ValueError(f"the checkpoint of {config.trial_id} lacks the state {name!r}: raise a version?")


_OPTIMIZER, _MONITOR = ":optimizer", ":monitor"  # no scheduler's name begins like that
_INTERNAL = (f"{_OPTIMIZER}/", f"{_MONITOR}/")


def _where(updated: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """New rows where they count, old ones elsewhere: (K,), (K, ...), (K, ...)."""
    return torch.where(updated.view(-1, *[1] * (new.dim() - 1)), new, old)


def _where_named(updated: Tensor, new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`_where` of every tensor of a state."""
    return {name: _where(updated, new[name], tensor) for name, tensor in old.items()}


class _Row(NamedTuple):
    parameters: Tensor
    floats: Tensor
    counters: Tensor


def _initialise(
    configs: Sequence[TrialConfig], task: Classification, dtype: torch.dtype
) -> tuple[nn.Module, list[_Row]]:
    """The module and every row's initial tensors, drawn in float32 from the row's own `init` stream."""
    build = component("model", configs[0].model).load()
    rows: dict[int, _Row] = {}
    module: nn.Module | None = None
    for config in configs:
        if config.seed in rows:
            continue
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_seed(config.seed, "init"))
            module = build(task.input_shape, task.classes, **config.model_options)
        if not isinstance(module, nn.Module):
            kind = type(module).__name__
            raise ConfigError("model", f"{config.model!r} gives a {kind}, expected a torch.nn.Module")
        buffers = list(module.buffers())
        rows[config.seed] = _Row(
            flatten(list(module.parameters()), dtype),
            flatten([b for b in buffers if b.is_floating_point()], dtype),
            flatten([b for b in buffers if not b.is_floating_point()], torch.int64),
        )
    assert module is not None
    return module.to(dtype), [rows[config.seed] for config in configs]
