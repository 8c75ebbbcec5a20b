"""Convex tasks of a stack: loss and gradient in closed form, for full batches and for mini-batches, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.data import stream
from trainer.optimizers import Pass
from trainer.problems import problem_of

TILE: Final = 8
"""A matrix product is done for a multiple of so many rows: BLAS adds up the rows of an incomplete tile in another
order, and then the bits of a row would depend on its place in the stack."""


class Convex:
    """A problem of `trainer.problems` on one device: what `Classification` is for images.

    The steps of an epoch are `record_every`. A mini-batch is drawn uniformly without replacement, independently of all
    others; with batch_size = n every step sees all f_i, each once.
    """

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
        if problem.kind == "ridge":
            self._hessian = torch.tensor(problem.hessian, **place)
            residual = torch.zeros_like(self.b) if problem.is_interpolated else z_star - self.b
            self._residual_star = residual
            self.star_losses = residual.square() / 2 + self.lambda_r / 2 * self.x_star.square().sum()
        else:
            self._a_transposed = self.a.T.contiguous()
            self._z_star = z_star
            self._slope_star = torch.sigmoid(-self.b * z_star)
            self.star_losses = F.softplus(-self.b * z_star)

    def to(self, device: torch.device, dtype: torch.dtype) -> Convex:
        """The same problem on `device`; `dtype` is always float64."""
        assert dtype == torch.float64, "the config sees to it"
        if device == self._device:
            return self
        other = Convex(self.kind, self.options)
        other._device = device
        other._place()
        return other

    def steps_per_epoch(self, _batch_size: int) -> int:
        """Steps between two rows of the history."""
        return self.record_every

    def order(self, seeds: Sequence[int], epoch: int, batch_size: int) -> Tensor:
        """The samples of an epoch's steps, one step after the other: (K, record_every * b). Rows of one seed share."""
        if batch_size == self.size:
            return torch.arange(self.size).repeat(self.record_every).expand(len(seeds), -1)
        drawn = {}
        for seed in set(seeds):
            keys = torch.rand(self.record_every, self.size, generator=stream(seed, "order", epoch), dtype=torch.float64)
            drawn[seed] = keys.argsort(dim=1)[:, :batch_size].reshape(-1)
        return torch.stack([drawn[seed] for seed in seeds])

    def mini_batch(self, order: Tensor, _draws: Tensor | None, _augmentation: str | None) -> tuple[Tensor, Tensor]:
        """Rows of A (K, b, d), and `order` (K, b) itself; no rows where the batch is full."""
        if order.shape[1] == self.size:
            return self.a.new_empty(0), order
        rows = self.a.index_select(0, order.reshape(-1))
        return rows.view(*order.shape, -1), order

    def start(self, seed: int) -> Tensor:
        """x^0 (d,): standard normal entries from the stream `init` of the trial's seed."""
        return torch.randn(self.problem.d, generator=stream(seed, "init"), dtype=torch.float64)

    def pass_at(self, theta: Tensor, rows: Tensor, order: Tensor) -> Pass:
        """Loss (K,), gradient (K, d) and, with full batches, f - f* without cancellation, at theta (K, d)."""
        if rows.numel():
            loss, grad = self._on_batch(theta, rows, order)
            gap = loss if self.problem.is_interpolated else None
        else:
            gap, grad = self._on_all(theta)
            loss = gap + self.f_star
        return Pass(loss, grad, torch.linalg.vecdot(grad, grad).sqrt(), theta.new_empty(len(theta), 0), gap)

    def gap(self, theta: Tensor) -> Tensor:
        """f(x) - f* of every row, (K, d) -> (K,), to the relative precision of x - x* itself."""
        return self._on_all(theta)[0]

    def _on_all(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        delta = theta - self.x_star
        if self.problem.kind == "ridge":
            grad = _product(delta, self._hessian)
            return torch.linalg.vecdot(delta, grad) / 2, grad
        moved = _product(delta, self._a_transposed) * self.b  # b_i a_i (x - x*)
        slope = torch.sigmoid(-self.b * self._z_star - moved)
        grad = _product(slope * (-self.b / self.size), self.a)
        # f(x) - f(x*) - <grad f(x*), x - x*> term by term, the last of which is 0: nothing large cancels.
        terms = torch.log1p(self._slope_star * torch.expm1(-moved)) + self._slope_star * moved
        return terms.mean(1), grad

    def _on_batch(self, theta: Tensor, rows: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        size = order.shape[1]
        if self.problem.kind == "ridge":
            delta = theta - self.x_star
            residual = torch.bmm(delta.unsqueeze(1), rows.transpose(1, 2)).squeeze(1)
            if not self.problem.is_interpolated:
                residual = residual + self._residual_star[order]
            loss = torch.linalg.vecdot(residual, residual) / (2 * size)
            grad = torch.bmm((residual / size).unsqueeze(1), rows).squeeze(1)
            if self.lambda_r:
                loss = loss + self.lambda_r / 2 * torch.linalg.vecdot(theta, theta)
                grad = grad + self.lambda_r * theta
            return loss, grad
        labels = self.b[order]
        margin = torch.bmm(theta.unsqueeze(1), rows.transpose(1, 2)).squeeze(1) * labels
        outer = torch.sigmoid(-margin) * (-labels / size)
        return F.softplus(-margin).mean(1), torch.bmm(outer.unsqueeze(1), rows).squeeze(1)


def load(kind: str, options: dict[str, Any]) -> Convex:
    """The task `kind` with its options."""
    return Convex(kind, options)


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows (K, m) times matrix (m, p), with the same bits for a row wherever it stands."""
    missing = -len(rows) % TILE
    if not missing:
        return rows @ matrix
    return (F.pad(rows, (0, 0, 0, missing)) @ matrix)[: len(rows)]
