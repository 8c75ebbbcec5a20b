"""The steps of one epoch, on any device: gather and augment a mini-batch, update the stack, add up what is reported."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from polysweep.trainer.stack.cuda_graph import Capture, Replay
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.streams import stream_seed
from polysweep.trainer.tasks.augmentation import epoch_draws

GAMMA_MEANS: Final = ("gamma/mean", "gamma/cap_share", "gamma/zero_share")
"""History columns of every task that are means over an epoch's counted steps."""


class Sums(NamedTuple):
    """Over the counted steps of one epoch; every tensor is (K,), `means` (quantities, K)."""

    means: Tensor
    steps: Tensor
    gamma_min: Tensor
    gamma_max: Tensor


class EpochResult(NamedTuple):
    """One epoch's sums, and how long its training took."""

    sums: Sums
    images: int
    steps: int
    training_seconds: float
    started: float  # time.perf_counter()


_StepValues = tuple[Tensor, tuple[Tensor, ...]]
"""Of one step: which rows it updated, and the value of each quantity whose mean is reported, (K,) each."""


class EpochRunner:
    """Runs the epochs of one stack, with the whole step captured where `capture` says how: one launch, no host sync."""

    def __init__(self, stack: Stack, capture: Capture | None = None) -> None:
        capture = None if stack.runs_alone else capture
        self._stack = stack
        self._config = stack.configs[0]
        self._augments = self._config.augmentation not in (None, "none")
        self._sums = self._zero()
        self._replay = None if capture is None else Replay(self._one_step, self._tensors, self._put, capture)
        self._keeps_steps = stack.task.adds_up_at_the_end and capture is None
        self._steps: list[_StepValues] = []  # kept until the end of the epoch
        if capture is not None:
            stack.run_captured()

    @property
    def overwrites(self) -> bool:
        """Whether a step writes into the stack's tensors, where it otherwise replaces them."""
        return self._replay is not None

    def close(self) -> None:
        """Release the captured graphs and their memory."""
        if self._replay is not None:
            self._replay.close()
        self._replay = None

    def run(self, epoch: int, steps: int, stop: Callable[[], bool]) -> EpochResult | None:
        """Train epoch 1, 2, ... after `steps` steps; None where `stop`, read between mini-batches, said so."""
        stack = self._stack
        started = time.perf_counter()
        stack.step_sizes.start_epoch(epoch - 1)
        self._start_sums()
        seeds = [config.seed for config in stack.configs]
        order = stack.task.order(seeds, epoch, self._config.batch_size).to(stack.device)
        draws = None
        if self._augments:
            draws = epoch_draws(seeds, epoch, stack.task.size, stack.task.input_shape).to(stack.device)
        per_epoch = stack.task.steps_per_epoch(self._config.batch_size)
        times = torch.arange(steps, steps + per_epoch, device=stack.device)
        step = self._replay or self._one_step
        images = taken = 0
        with _seeded(stack, epoch):
            for index, positions in enumerate(order.split(self._config.batch_size, dim=1)):
                if stop():
                    return None
                first, last = images, images + positions.shape[1]
                inputs = (positions, times[index]) if draws is None else (positions, times[index], draws[:, first:last])
                step(*inputs)
                images, taken = last, taken + 1
                if stack.may_ask and not stack.are_all_active() and not stack.active.any():
                    break
        if stack.device.type == "cuda":
            torch.cuda.synchronize(stack.device)  # once an epoch, so that its time is its own
        if self._steps:
            self._add_up()
        return EpochResult(self._sums, images, taken, time.perf_counter() - started, started)

    def rehearse(self, count: int) -> None:
        """One step on the first `count` images, to see whether it can be done."""
        stack = self._stack
        stack.step_sizes.start_epoch(0)
        positions = torch.arange(count, device=stack.device).expand(stack.width, -1)
        step = torch.zeros((), dtype=torch.int64, device=stack.device)
        draws = torch.zeros(stack.width, count, 5, dtype=torch.int16, device=stack.device) if self._augments else None
        self._one_step(positions, step, draws)

    def _one_step(self, positions: Tensor, step: Tensor, draws: Tensor | None = None) -> None:
        """Everything between two mini-batches: (K, b) positions in the training set, t, (K, b, 5) draws."""
        stack = self._stack
        images, labels = stack.task.mini_batch(positions, draws, self._config.augmentation)
        done = stack.step(images, labels, step)
        gamma, updated = done.result.gamma, done.updated
        values = (*gamma, *stack.task.of_step(done.result, labels))
        if self._keeps_steps:
            self._steps.append((updated, values))
            return
        before, measured = self._sums, torch.stack([value.to(stack.dtype) for value in values])
        if done.everyone:
            self._sums = Sums(
                before.means + measured,
                before.steps + 1,
                torch.minimum(before.gamma_min, gamma.value),
                torch.maximum(before.gamma_max, gamma.value),
            )
            return
        self._sums = Sums(
            before.means + torch.where(updated, measured, 0),
            before.steps + updated,
            torch.where(updated, torch.minimum(before.gamma_min, gamma.value), before.gamma_min),
            torch.where(updated, torch.maximum(before.gamma_max, gamma.value), before.gamma_max),
        )

    def _add_up(self) -> None:
        """The sums of the steps so far; every row by itself, so that its bits do not depend on its place."""
        dtype = self._stack.dtype
        updated = torch.stack([rows for rows, _ in self._steps], dim=1)
        quantities = [torch.stack(each, dim=1) for each in zip(*[values for _, values in self._steps], strict=True)]
        gamma = quantities[0]
        self._sums = Sums(
            torch.stack([torch.where(updated, quantity, 0).sum(1, dtype=dtype) for quantity in quantities]),
            updated.sum(1, dtype=dtype),
            torch.where(updated, gamma, math.inf).amin(1),
            torch.where(updated, gamma, -math.inf).amax(1),
        )
        self._steps.clear()

    def _zero(self) -> Sums:
        width = self._stack.width
        place: dict[str, Any] = {"device": self._stack.device, "dtype": self._stack.dtype}
        return Sums(
            torch.zeros(len(means_of(self._stack)), width, **place),
            torch.zeros(width, **place),
            torch.full((width,), math.inf, **place),
            torch.full((width,), -math.inf, **place),
        )

    def _start_sums(self) -> None:
        if self._replay is None:
            self._sums = self._zero()
        else:  # a captured graph goes on writing into the same tensors
            for tensor, value in zip(self._sums, self._zero(), strict=True):
                tensor.copy_(value)

    def _tensors(self) -> list[Tensor]:
        return [*self._stack.tensors(), *self._sums]

    def _put(self, tensors: list[Tensor]) -> None:
        self._stack.put(tensors[: -len(Sums._fields)])
        self._sums = Sums(*tensors[-len(Sums._fields) :])


@contextmanager
def _seeded(stack: Stack, epoch: int) -> Iterator[None]:
    """torch's own generators as the stream `module` of the epoch: for a user's module that draws, as `F.dropout` does.

    Such a module is never stacked: vmap refuses it.
    """
    with torch.random.fork_rng(devices=[stack.device] if stack.device.type == "cuda" else []):
        torch.manual_seed(stream_seed(stack.configs[0].seed, "module", epoch))
        yield


def means_of(stack: Stack) -> tuple[str, ...]:
    """The history columns that are means over the counted steps of an epoch."""
    return (*GAMMA_MEANS, *stack.task.step_columns)
