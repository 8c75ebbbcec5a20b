"""What evaluating a mini-batch at some point gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

Weigh = Callable[[Tensor], Tensor]
"""Weights (K, b) of a mini-batch's samples from their losses (K, b)."""


class LossAndGrad:
    """One forward and backward pass: `loss` (K,), `grad` (K, P), `norm` ||grad|| (K,), `logits` (K, b, classes).

    `square` (K,) is ||grad||^2; `gap` (K,) is f - f* without cancellation, None if f* is not known; `by_sample` (K, b)
    are the losses of the samples, of a task that has some, computed where they are asked for.
    """

    def __init__(
        self, loss: Tensor, grad: Tensor, logits: Tensor, by_sample: Callable[[], Tensor] | None = None
    ) -> None:
        self.grad, self.logits = grad, logits
        self._loss, self._by_sample = loss, by_sample

    @property
    def loss(self) -> Tensor:
        """f, (K,)."""
        return self._loss

    @property
    def gap(self) -> Tensor | None:
        """f - f*, (K,)."""
        return None

    @property
    def by_sample(self) -> Tensor:
        """The losses of the samples, (K, b)."""
        assert self._by_sample is not None, "the config sees to it"
        return self._by_sample()

    @property
    def finite_if_sound(self) -> tuple[Tensor, ...]:
        """What is finite, (K,) each, unless something went wrong in this pass."""
        return self.loss, self.norm

    @cached_property
    def square(self) -> Tensor:
        """||grad||^2, (K,)."""
        square: Tensor = torch.linalg.vecdot(self.grad, self.grad)
        return square

    @cached_property
    def norm(self) -> Tensor:
        """||grad||, (K,)."""
        return self.square.sqrt()


class LazyPass(LossAndGrad):
    """A pass of a convex task: its values are computed where they are asked for, as most optimizers need no loss.

    `value` gives f - f* where `star` is f*, and f itself where `star` is None.
    """

    def __init__(self, value: Callable[[], Tensor], grad: Tensor, star: float | None) -> None:
        super().__init__(grad, grad, grad)  # nobody asks for logits
        self._value, self._star = value, star

    @cached_property
    def _computed(self) -> Tensor:
        return self._value()

    @property
    def finite_if_sound(self) -> tuple[Tensor, ...]:
        """Nothing: the new rows show a gradient that is not finite, and the loss is measured after the epoch."""
        return ()

    @property
    def gap(self) -> Tensor | None:
        """f - f*, (K,)."""
        return None if self._star is None else self._computed

    @property
    def loss(self) -> Tensor:
        """f, (K,)."""
        return self._computed + self._star if self._star else self._computed
