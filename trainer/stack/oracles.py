"""What evaluates a mini-batch for a stack: a module's passes, or the closed form of a convex task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.task import Convex
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.stack.vmap import Buffers, Engine
from polysweep.trainer.tasks.classification import Classification


class Oracles(Protocol):
    """Of one stack. `begin` starts a step; `pass_at` may be called several times in it."""

    def begin(self, buffers: Buffers) -> None:
        """Take the running statistics of before the step."""
        ...

    def pass_at(self, theta: Tensor, inputs: Tensor, labels: Tensor) -> LossAndGrad:
        """Loss and gradient at rows (K, P) on the task's mini-batch."""
        ...

    def statistics(self) -> Buffers:
        """The running statistics of after the step."""
        ...


class ByModule:
    """Passes through a module, whose batch norms are updated by all passes of a step or by the first alone."""

    def __init__(
        self,
        engine: Engine,
        task: Classification,
        configs: Sequence[TrialConfig],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._engine, self._task, self._dtype = engine, task, dtype
        self._first_alone = configs[0].batchnorm_statistics == "first"
        self._first: Buffers | None = None
        smoothing = [c.label_smoothing or 0.0 for c in configs]
        self._smoothing = torch.tensor(smoothing, device=device, dtype=dtype) if any(smoothing) else None

    def begin(self, buffers: Buffers) -> None:
        """See `Oracles`."""
        self._first = None
        self._engine.begin(buffers, training=True)

    def pass_at(self, theta: Tensor, inputs: Tensor, labels: Tensor) -> LossAndGrad:
        """See `Oracles`."""
        logits = self._engine.forward(theta, inputs).to(self._dtype)
        loss = self._task.losses(logits, labels, self._smoothing)
        grad = self._engine.gradient(loss)
        if self._first is None and self._first_alone:
            self._first = self._engine.statistics()
        return LossAndGrad(loss.detach(), grad, logits.detach())

    def statistics(self) -> Buffers:
        """See `Oracles`."""
        return self._first or self._engine.statistics()

    @torch.no_grad()
    def evaluate(self, theta: Tensor, buffers: Buffers, images: Tensor) -> Tensor:
        """Logits (K, b, classes) of shared images (b, C, H, W), with running statistics."""
        self._engine.begin(buffers, training=False)
        return self._engine.forward(theta, images.expand(len(theta), *images.shape)).to(self._dtype)


class ClosedForm:
    """The formulas of a convex task; it has no running statistics."""

    def __init__(self, task: Convex) -> None:
        self._task = task
        self._buffers: Buffers | None = None

    def begin(self, buffers: Buffers) -> None:
        """See `Oracles`."""
        self._buffers = buffers

    def pass_at(self, theta: Tensor, inputs: Tensor, labels: Tensor) -> LossAndGrad:
        """See `Oracles`."""
        return self._task.pass_at(theta, inputs, labels)

    def statistics(self) -> Buffers:
        """See `Oracles`."""
        assert self._buffers is not None
        return self._buffers
