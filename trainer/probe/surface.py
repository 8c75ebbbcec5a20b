"""The loss of K rows around their weights, on fixed samples: values, gradients, and products with the Hessian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from polysweep.trainer.stack.oracles import Layout, buffers_of
from polysweep.trainer.task import Buffers

Batch = tuple[Tensor, Tensor]
"""Inputs (b, ...), the same for all rows, and targets (K, b, ...)."""


@dataclass
class Surface:
    """f of rows (K, P), each with its own running statistics: the mean loss over the samples of `batches`.

    The module is in evaluation mode: batch norms use their statistics, nothing is dropped, so that f is one function of
    the weights alone. `losses` gives the mean losses (K,) of outputs (K, b, ...) and targets (K, b, ...).
    """

    module: nn.Module
    buffers: Buffers
    batches: Sequence[Batch]
    losses: Callable[[Tensor, Tensor], Tensor]

    def __post_init__(self) -> None:
        self.module.eval()
        floats, counters = buffers_of(self.module)
        self._layout = Layout(dict(self.module.named_parameters()))
        self._buffers = Layout(floats).views(self.buffers.floats) | Layout(counters).views(self.buffers.counters)
        self._size = sum(targets.shape[1] for _, targets in self.batches)

    def value(self, theta: Tensor) -> Tensor:
        """f, (K, P) -> (K,)."""
        with torch.no_grad():
            return self._sum(lambda leaf, batch: self._share(leaf, batch).detach(), theta)

    def gradient(self, theta: Tensor) -> Tensor:
        """grad f, (K, P) -> (K, P)."""
        return self._sum(self._gradient, theta)

    def hessian_times(self, theta: Tensor, v: Tensor) -> Tensor:
        """H v, row by row, by differentiating <grad f, v> again: (K, P), (K, P) -> (K, P)."""

        def of_batch(leaf: Tensor, batch: Batch) -> Tensor:
            along = (self._gradient(leaf, batch, create_graph=True) * v).sum()
            (product,) = torch.autograd.grad(along, leaf, materialize_grads=True)
            return product

        return self._sum(of_batch, theta)

    def _sum(self, of_batch: Callable[[Tensor, Batch], Tensor], theta: Tensor) -> Tensor:
        """One batch after the other, each with its own graph: memory is that of one batch."""
        parts = [of_batch(theta.detach().requires_grad_(), batch) for batch in self.batches]
        return torch.stack(parts).sum(0)

    def _gradient(self, leaf: Tensor, batch: Batch, *, create_graph: bool = False) -> Tensor:
        (gradient,) = torch.autograd.grad(self._share(leaf, batch).sum(), leaf, create_graph=create_graph)
        return gradient

    def _share(self, theta: Tensor, batch: Batch) -> Tensor:
        """A batch's share of f, (K,)."""
        inputs, targets = batch
        return self.losses(self._outputs(theta, inputs), targets) * (targets.shape[1] / self._size)

    def _outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """(K, P), (b, ...) -> (K, b, ...). One row needs no vmap, which some modules refuse."""
        rows = {**self._layout.views(theta), **self._buffers}

        def one(tensors: dict[str, Tensor]) -> Any:
            return functional_call(self.module, tensors, (inputs,))

        if len(theta) == 1:
            outputs: Tensor = one({name: tensor[0] for name, tensor in rows.items()}).unsqueeze(0)
        else:
            outputs = torch.vmap(one)(rows)
        return outputs.to(theta.dtype)
