"""Convex tasks of a stack: loss and gradient in closed form, for full batches and for mini-batches, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.monitor import BoundsMonitor
from polysweep.trainer.convex.problem import problem_of
from polysweep.trainer.history import HISTORY_COLUMNS, PROBLEM_COLUMNS
from polysweep.trainer.passes import LazyPass, LossAndGrad, Weigh
from polysweep.trainer.streams import stream
from polysweep.trainer.task import Monitor, Oracle, Rows, Task

TILE: Final = 8
"""A matrix product is done for a multiple of so many rows: BLAS adds up the rows of an incomplete tile in another
order, and then the bits of a row would depend on its place in the stack."""

TAIL: Final = 64
"""More than the values that vectorised code takes at once."""
BLOCK: Final = 256
"""Steps whose mini-batches are drawn together."""

DEFINITE: Final = 1e-8
"""mu / L above which the Hessian itself is multiplied with, which is half the work."""


class Convex(Task):
    """A problem of `trainer.convex.problem` on one device.

    The steps of an epoch are `record_every`. A mini-batch is drawn uniformly without replacement, independently of all
    others; with batch_size = n every step sees all f_i, each once.
    """

    columns: ClassVar[tuple[str, ...]] = (*HISTORY_COLUMNS, *PROBLEM_COLUMNS)
    adds_up_at_the_end: ClassVar[bool] = True

    def __init__(self, kind: str, options: dict[str, Any]) -> None:
        self.kind, self.options = kind, options
        self.problem = problem_of(kind, options)
        self.record_every = int(options["record_every"])
        self.size = self.problem.n
        self.input_shape = (self.problem.d,)
        self.classes = 1
        self._device = torch.device("cpu")
        self._place()

    def _place(self) -> None:
        problem = self.problem
        place: dict[str, Any] = {"dtype": torch.float64, "device": self._device}
        self.a = torch.tensor(problem.a, **place)
        self.b = torch.tensor(problem.b, **place)
        self.x_star = torch.tensor(problem.x_star, **place)
        self.f_star = problem.f_star
        self.lambda_r = problem.lambda_r
        z_star = self.a @ self.x_star
        self._a_transposed = self.a.T.contiguous()
        if problem.kind == "ridge":
            self._hessian = torch.tensor(problem.hessian, **place)
            self._is_definite = problem.mu > DEFINITE * problem.L
            residual = torch.zeros_like(self.b) if problem.is_interpolated else z_star - self.b
            self._residual_star = residual
            self.star_losses = residual.square() / 2 + self.lambda_r / 2 * self.x_star.square().sum()
        else:
            self._z_star = z_star
            self._slope_star = torch.sigmoid(-self.b * z_star)
            self.star_losses = F.softplus(-self.b * z_star)

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same problem on `device`; `dtype` is always float64."""
        assert dtype == torch.float64, "the config sees to it"
        if device == self._device:
            return self
        other = type(self)(self.kind, self.options)
        other._device = device
        other._place()
        return other

    def few(self, count: int) -> Self:  # noqa: ARG002
        """Itself: some step sizes need all f_i."""
        return self

    def oracle_and_monitor(
        self, configs: Sequence[TrialConfig], factory_kwargs: Mapping[str, Any]
    ) -> tuple[Oracle, Monitor]:
        """The closed forms, and what the paper says about their steps."""
        seeds = [config.seed for config in configs]
        return ClosedForm(self, seeds), BoundsMonitor(configs, self, factory_kwargs)

    def steps_per_epoch(self, batch_size: int) -> int:  # noqa: ARG002
        """Steps between two rows of the history."""
        return self.record_every

    def order(self, seeds: Sequence[int], epoch: int, batch_size: int) -> Tensor:
        """The samples of an epoch's steps, one step after the other: (K, record_every * b). Rows of one seed share."""
        if batch_size == self.size:
            return torch.arange(self.size).repeat(self.record_every).expand(len(seeds), -1)
        first = (epoch - 1) * self.record_every
        steps = range(first, first + self.record_every)
        blocks = range(steps[0] // BLOCK, steps[-1] // BLOCK + 1)
        drawn = {}
        for seed in set(seeds):
            order = torch.cat([_drawn(seed, block, self.size) for block in blocks])
            at = first - blocks[0] * BLOCK
            drawn[seed] = order[at : at + self.record_every, :batch_size].reshape(-1)
        return torch.stack([drawn[seed] for seed in seeds])

    def mini_batch(
        self,
        order: Tensor,
        draws: Tensor | None = None,  # noqa: ARG002
        augmentation: str | None = None,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        """Rows of A (K, b, d), and `order` (K, b) itself; no rows where the batch is full."""
        if order.shape[1] == self.size:
            return self.a.new_empty(0), order
        order = order.contiguous()
        return self.a.index_select(0, order.view(-1)).view(*order.shape, -1), order

    def start(self, seed: int) -> Tensor:
        """x^0 (d,): standard normal entries from the stream `init` of the trial's seed."""
        return torch.randn(self.problem.d, generator=stream(seed, "init"), dtype=torch.float64)

    def pass_at(self, theta: Tensor, rows: Tensor, order: Tensor) -> LossAndGrad:
        """The pass at theta (K, d) on a mini-batch of `mini_batch`."""
        return self._on_batch(theta, rows, order) if rows.numel() else self._on_all(theta)

    def gap(self, theta: Tensor) -> Tensor:
        """f(x) - f* of every row, (K, d) -> (K,), to the relative precision of x - x* itself."""
        gap = self._on_all(theta).gap
        assert gap is not None
        return gap

    def _on_all(self, theta: Tensor) -> LossAndGrad:
        delta = theta - self.x_star
        if self.problem.kind == "ridge" and self._is_definite:
            grad = _product(delta, self._hessian)
            return LazyPass(lambda: torch.linalg.vecdot(delta, grad) / 2, grad, self.f_star)
        if self.problem.kind == "ridge":
            # Of x - x* only what A sees: else the rounding of the rest would hide f - f* and the gradient.
            seen = _product(delta, self._a_transposed)
            grad = _product(seen / self.size, self.a)
            return LazyPass(lambda: torch.linalg.vecdot(seen, seen) / (2 * self.size), grad, self.f_star)
        moved = _product(delta, self._a_transposed) * self.b  # b_i a_i (x - x*)
        slope = _each(torch.sigmoid, -self.b * self._z_star - moved)
        grad = _product(slope * (-self.b / self.size), self.a)

        def gap() -> Tensor:
            """f(x) - f(x*) - <grad f(x*), x - x*> term by term, the last of which is 0: nothing large cancels."""
            fallen = self._slope_star * _each(torch.expm1, -moved)
            return (_each(torch.log1p, fallen) + self._slope_star * moved).mean(1)

        return LazyPass(gap, grad, self.f_star)

    def _on_batch(self, theta: Tensor, rows: Tensor, order: Tensor) -> LossAndGrad:
        size = order.shape[1]
        if self.problem.kind == "ridge":
            residual = torch.bmm((theta - self.x_star).unsqueeze(1), rows.transpose(1, 2)).squeeze(1)
            if not self.problem.is_interpolated:
                residual = residual + _picked(self._residual_star, order)
            grad = torch.bmm((residual / size).unsqueeze(1), rows).squeeze(1)
            if self.lambda_r:
                grad = torch.add(grad, theta, alpha=self.lambda_r)

            def loss() -> Tensor:
                mean: Tensor = torch.linalg.vecdot(residual, residual) / (2 * size)
                if self.lambda_r:
                    mean = mean + self.lambda_r / 2 * torch.linalg.vecdot(theta, theta)
                return mean

            return LazyPass(loss, grad, 0.0 if self.problem.is_interpolated else None)
        labels = _picked(self.b, order)
        margin = torch.bmm(theta.unsqueeze(1), rows.transpose(1, 2)).squeeze(1) * labels
        outer = _each(torch.sigmoid, -margin) * (-labels / size)
        grad = torch.bmm(outer.unsqueeze(1), rows).squeeze(1)
        return LazyPass(lambda: _each(F.softplus, -margin).mean(1), grad, None)


class ClosedForm(Oracle):
    """Loss and gradient of a convex task by its formulas; a row is x itself, and there are no running statistics."""

    def __init__(self, task: Convex, seeds: Sequence[int]) -> None:
        self._task, self._seeds = task, seeds

    def start(self) -> Rows:
        """See `Oracle`."""
        x0 = torch.stack([self._task.start(seed) for seed in self._seeds])
        return Rows.without_buffers(x0.to(self._task.a.device))

    def pass_at(self, theta: Tensor, inputs: Tensor, labels: Tensor, weigh: Weigh | None = None) -> LossAndGrad:
        """See `Oracle`."""
        assert weigh is None, "the config sees to it"
        return self._task.pass_at(theta, inputs, labels)


@lru_cache(maxsize=64)
def _drawn(seed: int, block: int, size: int) -> Tensor:
    """Random orders of all samples for the steps of a block, (BLOCK, size): the first b of one are its mini-batch.

    They depend on seed and step alone, not on how often the history is recorded.
    """
    keys = torch.rand(BLOCK, size, generator=stream(seed, "order", block), dtype=torch.float64)
    return keys.argsort(dim=1)


def _each(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """The function of every value, with the same bits for a value wherever it stands.

    Vectorised code takes the last few of a tensor one by one, and rounds some of them otherwise: here they are padding.
    """
    flat = F.pad(values.reshape(-1), (0, TAIL))
    return function(flat)[: values.numel()].view(values.shape)


def _picked(values: Tensor, order: Tensor) -> Tensor:
    """values (n,) at `order` (K, b)."""
    return values.index_select(0, order.reshape(-1)).view(order.shape)


def ridge(data: Path, val_fraction: float, **options: Any) -> Convex:  # noqa: ARG001
    """The task `ridge`; it needs no data folder, and nothing of it is held out."""
    return Convex("ridge", options)


def logistic(data: Path, val_fraction: float, **options: Any) -> Convex:  # noqa: ARG001
    """The task `logistic`; it needs no data folder, and nothing of it is held out."""
    return Convex("logistic", options)


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows (K, m) times matrix (m, p), with the same bits for a row wherever it stands."""
    missing = -len(rows) % TILE
    if not missing:
        return rows @ matrix
    return (F.pad(rows, (0, 0, 0, missing)) @ matrix)[: len(rows)]
