"""What a task gives to its stack: mini-batches, an oracle that evaluates them, and a monitor that measures the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Self

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.optimizers.optimizer import State, StepResult
from polysweep.trainer.passes import LossAndGrad, Weigh

DTYPES: Final = {
    "float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64,
}  # fmt: skip
"""Of a stack's rows, inputs, statistics and losses, by precision."""


class Buffers(NamedTuple):
    """A module's buffers for K rows: floating ones (K, B), counters (K, I)."""

    floats: Tensor
    counters: Tensor


class Rows(NamedTuple):
    """K trials: parameters `theta` (K, P) and buffers."""

    theta: Tensor
    buffers: Buffers

    @classmethod
    def without_buffers(cls, theta: Tensor) -> Rows:
        """Rows (K, P) of something that keeps no running statistics."""
        none = theta.new_empty(len(theta), 0)
        return cls(theta, Buffers(none, none.long()))


class Oracle(ABC):
    """Loss and gradient of mini-batches for the K rows of one stack."""

    @abstractmethod
    def start(self) -> Rows:
        """The rows before step 0, each from its own seed."""

    def shapes(self) -> Sequence[torch.Size]:
        """The shapes of the parameters that a row is made of, in its order."""
        return [self.start().theta.shape[1:]]

    def begin(self, buffers: Buffers, step: Tensor) -> None:  # noqa: ARG002
        """Begin step t, (), with the running statistics of before it."""
        self._buffers = buffers

    @abstractmethod
    def pass_at(self, theta: Tensor, inputs: Tensor, labels: Tensor, weigh: Weigh | None = None) -> LossAndGrad:
        """Loss and gradient at rows (K, P) on a mini-batch of the task; may be called several times in a step.

        With `weigh` the loss is the sum of the samples' losses with these weights; a convex task is not asked for it.
        """

    def statistics(self) -> Buffers:
        """The running statistics of after the step."""
        return self._buffers


class Measurement(NamedTuple):
    """After an epoch: by history column values (K,), NaN if undefined; which rows survive it, (K,) bool; the state."""

    columns: Mapping[str, Tensor]
    survives: Tensor
    state: State


class Monitor(ABC):
    """Follows the rows of one stack from step to step and measures them after an epoch; never changes them."""

    def init(self, theta: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        """The state at x^0: by name, tensors (K, ...) that a trial's checkpoint keeps."""
        return {}

    def run_captured(self) -> None:  # noqa: B027
        """Called if steps are a captured graph: the Python code of `after` runs at the capture, not in each step."""

    def after(self, state: State, theta: Tensor, result: StepResult, labels: Tensor, step: Tensor) -> State:  # noqa: ARG002
        """The state after step t, (), took rows `theta` (K, P) to those of `result` on samples with `labels` (K, b)."""
        return state

    @abstractmethod
    def measure(self, state: State, rows: Rows, active: Tensor, step: int) -> Measurement:
        """Measure the rows after `step` steps; `active` (K,) bool are those that have not diverged."""


class Task(ABC):
    """A data set with its loss and what is measured of it. Loaded once, and shared by the stacks of a process."""

    size: int  # samples of the training set
    input_shape: tuple[int, ...]  # of one sample
    classes: int  # or of outputs, of another task

    columns: ClassVar[tuple[str, ...]]
    """The columns of its histories, in their order."""
    step_columns: ClassVar[tuple[str, ...]] = ()
    """Those that are means over the counted steps of an epoch, besides those of the step sizes."""
    adds_up_at_the_end: ClassVar[bool] = False
    """Whether the means are taken once an epoch, which pays where a step takes microseconds."""

    @abstractmethod
    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same task with its data on `device` and its inputs in `dtype`."""

    def for_rows(self, configs: Sequence[TrialConfig]) -> Self:  # noqa: ARG002
        """The same task with what a row's config changes of its training samples; by default nothing."""
        return self

    @abstractmethod
    def few(self, count: int) -> Self:
        """The same task with at most `count` samples of each set, for a rehearsal; itself if it needs all of them."""

    @abstractmethod
    def steps_per_epoch(self, batch_size: int) -> int:
        """Steps between two rows of the history."""

    @abstractmethod
    def order(self, seeds: Sequence[int], epoch: int, batch_size: int) -> Tensor:
        """The samples of the mini-batches of epoch 1, 2, ..., one batch after the other: (K, samples)."""

    @abstractmethod
    def mini_batch(self, order: Tensor, draws: Tensor | None, augmentation: str | None) -> tuple[Tensor, Tensor]:
        """Inputs (K, b, ...) and labels (K, b) of the samples `order` (K, b).

        `draws` (K, b, 5) are those of `trainer.tasks.augmentation.epoch_draws`, None without augmentation.
        """

    @abstractmethod
    def oracle_and_monitor(
        self, configs: Sequence[TrialConfig], factory_kwargs: Mapping[str, Any]
    ) -> tuple[Oracle, Monitor]:
        """What evaluates and what measures a stack of K trials, whose tensors have `factory_kwargs`: device, dtype."""

    def of_step(self, result: StepResult, labels: Tensor) -> list[Tensor]:  # noqa: ARG002
        """The values of one step whose means are `step_columns`, (K,) each."""
        return []
