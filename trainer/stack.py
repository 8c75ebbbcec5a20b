"""A stack: K trials of one signature as the rows of one matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trainer.config import TrialConfig
from trainer.data import stream_seed
from trainer.engine import Buffers, flatten, make_engine
from trainer.optimizers import Optimizer, Pass, Proposal
from trainer.registry import MODELS, OPTIMIZERS
from trainer.schedulers import StepSizes
from trainer.tasks import Classification

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Step(NamedTuple):
    """What one step did. `counted` (K,) bool: rows that were updated; the rest are frozen."""

    proposal: Proposal
    counted: Tensor


class Stack:
    """K trials as one matrix `theta` (K, P).

    What a row becomes depends on its config, the device, the thread count and K; never on its neighbours. A row whose
    loss, gradient or update is not finite keeps its parameters and buffers from before the step and is frozen.

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
        self._engine = make_engine(module.to(self.device), len(configs))
        self.theta = torch.stack([row.parameters for row in rows]).to(self.device)
        self.buffers = Buffers(
            torch.stack([row.floats for row in rows]).to(self.device),
            torch.stack([row.counters for row in rows]).to(self.device),
        )
        has_momentum = any(c.momentum for c in configs)
        self.velocity = torch.zeros_like(self.theta) if has_momentum else None
        self.active = torch.ones(len(configs), dtype=torch.bool, device=self.device)
        self.step_sizes = StepSizes(configs, self.device, self.dtype)
        family = OPTIMIZERS[first.optimizer].load()
        self._optimizer: Optimizer = family(configs, self.step_sizes, self.device, self.dtype)
        self._update_statistics_twice = first.batchnorm_statistics != "first"
        smoothing = [c.label_smoothing or 0.0 for c in configs]
        self._smoothing = torch.tensor(smoothing, device=self.device, dtype=self.dtype) if any(smoothing) else None

    @property
    def width(self) -> int:
        """K."""
        return len(self.configs)

    def step(self, images: Tensor, labels: Tensor, step: int) -> Step:
        """Update all active rows on one mini-batch each: images (K, b, C, H, W), labels (K, b); t = `step`.

        No host sync: nothing here waits for the device.
        """
        self._engine.begin(self.buffers, training=True)
        first: Buffers | None = None

        def oracle(theta: Tensor) -> Pass:
            nonlocal first
            logits = self._engine.forward(theta, images)
            loss = self.task.losses(logits, labels, self._smoothing)
            grad = self._engine.gradient(loss)
            if first is None and not self._update_statistics_twice:
                first = self._engine.statistics()
            return Pass(loss.detach(), grad, logits.detach())

        proposal = self._optimizer.propose(oracle, self.theta, self.velocity, step)
        buffers = first or self._engine.statistics()
        finite = (
            torch.isfinite(proposal.x.loss)
            & torch.isfinite(proposal.e.loss)
            & torch.isfinite(proposal.norm_x)
            & torch.isfinite(proposal.norm_e)
            & torch.isfinite(proposal.theta).all(1)
        )
        counted = self.active & finite
        keep = counted.unsqueeze(1)
        self.theta = torch.where(keep, proposal.theta, self.theta)
        self.buffers = Buffers(
            torch.where(keep, buffers.floats, self.buffers.floats),
            torch.where(keep, buffers.counters, self.buffers.counters),
        )
        if self.velocity is not None and proposal.velocity is not None:
            self.velocity = torch.where(keep, proposal.velocity, self.velocity)
        self.active = counted
        return Step(proposal, counted)

    @torch.no_grad()
    def evaluate(self, images: Tensor) -> Tensor:
        """Logits (K, b, classes) of shared images (b, C, H, W), with running statistics."""
        self._engine.begin(self.buffers, training=False)
        return self._engine.forward(self.theta, images.expand(self.width, *images.shape))

    def row_state(self, row: int) -> dict[str, Tensor]:
        """Views of one row's parameters, buffers and momentum, for its checkpoint."""
        state = {
            "theta": self.theta[row],
            "floats": self.buffers.floats[row],
            "counters": self.buffers.counters[row],
        }
        if self.velocity is not None and self.configs[row].momentum:
            state["velocity"] = self.velocity[row]
        return state

    def load_row(self, row: int, state: Mapping[str, Any]) -> None:
        """Put `row_state` back."""
        self.theta[row] = state["theta"]
        self.buffers.floats[row] = state["floats"]
        self.buffers.counters[row] = state["counters"]
        if "velocity" in state:
            assert self.velocity is not None
            self.velocity[row] = state["velocity"]


class _Row(NamedTuple):
    parameters: Tensor
    floats: Tensor
    counters: Tensor


def _initialise(
    configs: Sequence[TrialConfig], task: Classification, dtype: torch.dtype
) -> tuple[nn.Module, list[_Row]]:
    """The module and every row's initial tensors, drawn in float32 from the row's own `init` stream."""
    build = MODELS[configs[0].model].load()
    rows: dict[int, _Row] = {}
    module: nn.Module | None = None
    for config in configs:
        if config.seed in rows:
            continue
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_seed(config.seed, "init"))
            module = build(task.input_shape, task.classes, **config.model_options)
        assert module is not None
        buffers = list(module.buffers())
        rows[config.seed] = _Row(
            flatten(list(module.parameters()), dtype),
            flatten([b for b in buffers if b.is_floating_point()], dtype),
            flatten([b for b in buffers if not b.is_floating_point()], torch.int64),
        )
    assert module is not None
    return module.to(dtype), [rows[config.seed] for config in configs]
