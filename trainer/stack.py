"""A stack: K trials of one signature as the rows of one matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainer.config import TrialConfig
from trainer.data import stream_seed
from trainer.engine import Buffers, flatten, make_engine
from trainer.layers import use_bfloat16
from trainer.optimizers import Optimizer, Pass, Proposal
from trainer.plugins import component
from trainer.registry import ConfigError
from trainer.schedulers import Gamma, Seen, StepSizes
from trainer.tasks import DTYPES, Classification


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

    def __init__(
        self, configs: Sequence[TrialConfig], task: Classification, device: torch.device | str = "cpu"
    ) -> None:
        first = configs[0]
        assert len({c.signature for c in configs}) == 1, "rows of one stack share their signature"
        self.configs = list(configs)
        self.device = torch.device(device)
        self.dtype = DTYPES[first.precision]
        self.task = task.to(self.device, self.dtype)
        module, rows = _initialise(self.configs, task, self.dtype)
        if first.precision == "bfloat16":
            use_bfloat16(module, f"model {first.model!r}", stacked=len(configs) > 1)
        # cuDNN has its float32 kernels for the contiguous layout, those of tensor cores for channels last.
        layout = self.device.type != "cuda" or first.precision in ("bfloat16", "tf32")
        self._engine = make_engine(module.to(self.device), len(configs), channels_last=layout)
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
        for name, tensor in self.state.items():
            if tensor.shape[:1] != (self.width,):
                raise ValueError(f"state {name!r} has shape {tuple(tensor.shape)}; expected K = {self.width} first")
        self._update_statistics_twice = first.batchnorm_statistics != "first"
        smoothing = [c.label_smoothing or 0.0 for c in configs]
        self._smoothing = torch.tensor(smoothing, device=self.device, dtype=self.dtype) if any(smoothing) else None

    @property
    def width(self) -> int:
        """K."""
        return len(self.configs)

    def step(self, images: Tensor, labels: Tensor, step: Tensor) -> Step:
        """Update all active rows on one mini-batch each: images (K, b, C, H, W), labels (K, b); `step` is t, ().

        No host sync: nothing here waits for the device.
        """
        self._engine.begin(self.buffers, training=True)
        first: Buffers | None = None
        remembered = {k: v for k, v in self.state.items() if not k.startswith(f"{_OPTIMIZER}/")}

        def oracle(theta: Tensor) -> Pass:
            nonlocal first
            logits = self._engine.forward(theta, images).to(self.dtype)
            loss = self.task.losses(logits, labels, self._smoothing)
            grad = self._engine.gradient(loss)
            if first is None and not self._update_statistics_twice:
                first = self._engine.statistics()
            return Pass(loss.detach(), grad, torch.linalg.vecdot(grad, grad).sqrt(), logits.detach())

        def step_size(e: Pass, ascent: Tensor) -> Gamma:
            nonlocal remembered
            gamma, remembered = self.step_sizes.gamma(Seen(e.loss, e.grad, ascent, step), remembered)
            return gamma

        own = {k.removeprefix(f"{_OPTIMIZER}/"): v for k, v in self.state.items() if k not in remembered}
        proposal = self._optimizer.propose(oracle, step_size, self.theta, own, step)
        buffers = first or self._engine.statistics()
        finite = (
            torch.isfinite(proposal.x.loss)
            & torch.isfinite(proposal.e.loss)
            & torch.isfinite(proposal.x.norm)
            & torch.isfinite(proposal.e.norm)
            & torch.isfinite(proposal.theta).all(1)
        )
        counted = self.active & finite
        state = {**{f"{_OPTIMIZER}/{k}": v for k, v in proposal.state.items()}, **remembered}
        self.theta = _where(counted, proposal.theta, self.theta)
        self.buffers = Buffers(
            _where(counted, buffers.floats, self.buffers.floats),
            _where(counted, buffers.counters, self.buffers.counters),
        )
        self.state = {name: _where(counted, state[name], before) for name, before in self.state.items()}
        self.active = counted
        return Step(proposal, counted)

    @torch.no_grad()
    def evaluate(self, images: Tensor) -> Tensor:
        """Logits (K, b, classes) of shared images (b, C, H, W), with running statistics."""
        self._engine.begin(self.buffers, training=False)
        return self._engine.forward(self.theta, images.expand(self.width, *images.shape)).to(self.dtype)

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
        kept = (f"{_OPTIMIZER}/", f"{self.configs[row].scheduler}/")
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
            elif name.startswith((f"{_OPTIMIZER}/", f"{config.scheduler}/")):
                raise ValueError(f"the checkpoint of {config.trial_id} lacks the state {name!r}: raise a version?")


_OPTIMIZER = ":optimizer"  # no scheduler's name begins like that


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
