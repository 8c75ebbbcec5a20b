"""A stack: K trials of one signature as the rows of one matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainer.config import TrialConfig
from trainer.convex import Convex
from trainer.data import stream_seed
from trainer.engine import Buffers, flatten, make_engine
from trainer.layers import use_bfloat16
from trainer.monitor import Monitor
from trainer.optimizers import Optimizer, Pass, Proposal
from trainer.oracles import ByModule, ClosedForm, Oracles
from trainer.plugins import component
from trainer.registry import ConfigError
from trainer.schedulers import Gamma, Seen, StepSizes
from trainer.tasks import DTYPES, Classification, Task


class Step(NamedTuple):
    """What one step did. `counted` (K,) bool: rows that were updated; the rest are frozen."""

    proposal: Proposal
    counted: Tensor


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
        self.step_sizes = StepSizes(configs, self.device, self.dtype)
        family = component("optimizer", first.optimizer).load()
        self._optimizer: Optimizer = family(configs, self.device, self.dtype)
        self.state = {
            **{f"{_OPTIMIZER}/{name}": value for name, value in self._optimizer.initial(self.theta).items()},
            **self.step_sizes.initial(),
        }
        if self.monitor is not None:
            self.state |= {f"{_MONITOR}/{name}": value for name, value in self.monitor.initial(self.theta).items()}
        for name, tensor in self.state.items():
            if tensor.shape[:1] != (self.width,):
                raise ValueError(f"state {name!r} has shape {tuple(tensor.shape)}; expected K = {self.width} first")

    @property
    def width(self) -> int:
        """K."""
        return len(self.configs)

    def step(self, images: Tensor, labels: Tensor, step: Tensor) -> Step:
        """Update all active rows on one mini-batch each: images (K, b, C, H, W), labels (K, b); `step` is t, ().

        No host sync: nothing here waits for the device.
        """
        self._oracles.begin(self.buffers)
        remembered = {k: v for k, v in self.state.items() if not k.startswith(_INTERNAL)}

        def oracle(theta: Tensor) -> Pass:
            return self._oracles.pass_at(theta, images, labels)

        def step_size(e: Pass, ascent: Tensor) -> Gamma:
            nonlocal remembered
            gamma, remembered = self.step_sizes.gamma(Seen(e.loss, e.grad, ascent, step, e.gap), remembered)
            return gamma

        own = self._own(_OPTIMIZER)
        proposal = self._optimizer.propose(oracle, step_size, self.theta, own, step)
        buffers = self._oracles.statistics()
        finite = (
            torch.isfinite(proposal.x.loss)
            & torch.isfinite(proposal.e.loss)
            & torch.isfinite(proposal.x.norm)
            & torch.isfinite(proposal.e.norm)
            & torch.isfinite(proposal.theta.sum(1))  # a sum is finite only if every summand is
        )
        counted = self.active & finite
        state = {**{f"{_OPTIMIZER}/{k}": v for k, v in proposal.state.items()}, **remembered}
        if self.monitor is not None:
            followed = self.monitor.after(self._own(_MONITOR), self.theta, proposal, labels, step)
            state |= {f"{_MONITOR}/{k}": v for k, v in followed.items()}
        if self.device.type == "cpu" and bool(counted.all()):  # elsewhere asking would be a sync in every step
            self.theta, self.buffers = proposal.theta, buffers
            self.state = {name: state[name] for name in self.state}
        else:
            self.theta = _where(counted, proposal.theta, self.theta)
            self.buffers = Buffers(
                _where(counted, buffers.floats, self.buffers.floats),
                _where(counted, buffers.counters, self.buffers.counters),
            )
            self.state = {name: _where(counted, state[name], before) for name, before in self.state.items()}
        self.active = counted
        return Step(proposal, counted)

    def evaluate(self, images: Tensor) -> Tensor:
        """Logits (K, b, classes) of shared images (b, C, H, W), with running statistics; of no convex task."""
        assert isinstance(self._oracles, ByModule), "a convex task has no images"
        return self._oracles.evaluate(self.theta, self.buffers, images)

    def measure(self, step: int) -> dict[str, Tensor]:
        """Of a convex task the columns `PROBLEM_COLUMNS` after `step` steps, (K,) each; NaN for what is undefined."""
        assert self.monitor is not None, "only of a convex task"
        state = self._own(_MONITOR)
        gap = self.task.gap(self.theta) if isinstance(self.task, Convex) else torch.empty(0)
        at = torch.tensor(step, device=self.device)
        hits = torch.where(self.active.unsqueeze(1), self.monitor.hit(state, gap, at), state["hits"])
        self.state[f"{_MONITOR}/hits"] = hits
        return self.monitor.measure({**state, "hits": hits}, self.theta, step)

    def _own(self, prefix: str) -> dict[str, Tensor]:
        """The state under a prefix, by its owner's names."""
        start = f"{prefix}/"
        return {k.removeprefix(start): v for k, v in self.state.items() if k.startswith(start)}

    def tensors(self) -> list[Tensor]:
        """Everything that a step replaces, in the order of `put`."""
        return [self.theta, self.buffers.floats, self.buffers.counters, self.active, *self.state.values()]

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Go on from these."""
        self.theta, floats, counters, self.active, *state = tensors
        self.buffers = Buffers(floats, counters)
        self.state = dict(zip(self.state, state, strict=True))

    def row_state(self, row: int) -> dict[str, Tensor]:
        """Views of one row's parameters, buffers, optimizer and scheduler state, for its checkpoint."""
        kept = (*_INTERNAL, f"{self.configs[row].scheduler}/")
        return {
            "theta": self.theta[row],
            "floats": self.buffers.floats[row],
            "counters": self.buffers.counters[row],
            **{name: tensor[row] for name, tensor in self.state.items() if name.startswith(kept)},
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
            elif name.startswith((*_INTERNAL, f"{config.scheduler}/")):
                raise ValueError(f"the checkpoint of {config.trial_id} lacks the state {name!r}: raise a version?")


_OPTIMIZER, _MONITOR = ":optimizer", ":monitor"  # no scheduler's name begins like that
_INTERNAL = (f"{_OPTIMIZER}/", f"{_MONITOR}/")


def _where(counted: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """New rows where they count, old ones elsewhere: (K,), (K, ...), (K, ...)."""
    return torch.where(counted.view(-1, *[1] * (new.dim() - 1)), new, old)


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
