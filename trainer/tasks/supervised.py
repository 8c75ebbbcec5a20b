"""Tasks of inputs and targets with a held-out test set: any loss, any metrics; regression."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.history import HISTORY_COLUMNS
from polysweep.trainer.optimizers.optimizer import StepResult
from polysweep.trainer.stack.oracles import ModuleOracle, module_oracle
from polysweep.trainer.streams import epoch_order
from polysweep.trainer.task import Monitor, Task
from polysweep.trainer.tasks.held_out import HeldOutMonitor
from polysweep.trainer.tasks.samples import Samples

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (b, ...) and targets (b, ...) of samples -> their mean loss (), or their losses (b, ...)."""
Metric = Callable[[Tensor, Tensor], Any]
"""Outputs (N, ...) and targets (N, ...) of a whole set -> one number."""


class WithTestSet(Task):
    """What tasks of inputs and targets share. `val` is None if nothing is held out for validation.

    `metrics` are measured on the validation and the test set as `val/name` and `test/name`, besides what the task
    itself measures there.
    """

    train: Samples
    val: Samples | None
    test: Samples
    metrics: Mapping[str, Metric]

    built_in: ClassVar[tuple[str, ...]] = ()
    """What the task itself measures on every set, besides the loss."""

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of every history, and the metrics'."""
        return (*HISTORY_COLUMNS, *(f"{split}/{name}" for split in ("val", "test") for name in self.metrics))

    @property
    def measured(self) -> tuple[str, ...]:
        """What is measured on the test set, besides the loss."""
        return (*self.built_in, *self.metrics)

    @property
    def size(self) -> int:  # type: ignore[override]
        """Samples of the training set."""
        return len(self.train)

    @property
    def input_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Of one input."""
        return tuple(self.train.inputs.shape[1:])

    def steps_per_epoch(self, batch_size: int) -> int:
        """Mini-batches of one pass over the training set."""
        return math.ceil(self.size / batch_size)

    def order(self, seeds: Sequence[int], epoch: int, batch_size: int) -> Tensor:  # noqa: ARG002
        """The samples of an epoch's mini-batches, one after the other: (K, size), each sample once."""
        return epoch_order(seeds, epoch, self.size)

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same task with its data resident on `device` and its inputs in `dtype`."""
        val = None if self.val is None else self.val.to(device, dtype)
        return self.with_sets(self.train.to(device, dtype), val, self.test.to(device, dtype))

    def few(self, count: int) -> Self:
        """The first `count` samples of each set."""
        val = None if self.val is None else self.val.first(count)
        return self.with_sets(self.train.first(count), val, self.test.first(count))

    def with_sets(self, train: Samples, val: Samples | None, test: Samples) -> Self:
        """The same task of other samples; the task is a dataclass."""
        return replace(self, train=train, val=val, test=test)  # type: ignore[type-var]

    def inputs(self, inputs: Tensor) -> Tensor:
        """What a model is given of stored inputs (..., b, ...)."""
        return inputs

    def mini_batch(self, order: Tensor, draws: Tensor | None, augmentation: str | None) -> tuple[Tensor, Tensor]:
        """Inputs (K, b, ...) and targets (K, b, ...) of the training samples `order` (K, b); no augmentation."""
        if draws is not None:
            raise ConfigError("augmentation", f"{augmentation!r} is for a task of polysweep.Images")
        at = self.train.positions(order)
        return self.inputs(self.train.inputs[at]), self.train.targets[at]

    def oracle_and_monitor(
        self, configs: Sequence[TrialConfig], factory_kwargs: Mapping[str, Any]
    ) -> tuple[ModuleOracle, Monitor]:
        """Passes through the model of the configs, and an evaluation of the held-out sets."""
        losses = self.training_losses(configs, factory_kwargs)
        oracle = module_oracle(configs, self.input_shape, self.classes, losses, factory_kwargs)
        return oracle, HeldOutMonitor(self, oracle)

    def training_losses(
        self,
        configs: Sequence[TrialConfig],  # noqa: ARG002
        factory_kwargs: Mapping[str, Any],  # noqa: ARG002
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss that is trained, as `losses`; here the same."""
        return self.losses

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of each row: (K, b, ...), (K, b, ...) -> (K,)."""
        raise NotImplementedError

    def sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Sums over samples that `means` makes the loss and what `built_in` names: (K, b, ...) twice -> (K, ...)."""
        raise NotImplementedError

    def means(self, totals: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
        """What is logged of the `sums` over `count` samples, (K,) each in float64."""
        return {name: total.double() / count for name, total in totals.items()}

    def shaped(self, outputs: Tensor, targets: Tensor) -> Tensor:  # noqa: ARG002
        """A row's or all rows' outputs as loss and metrics take them."""
        return outputs

    def worst(self, outputs: Tensor) -> Tensor:
        """What is finite, (K,), if and only if a row's outputs (K, b, ...) are sound. No target changes it."""
        return outputs.square().flatten(1).sum(1)


@dataclass(frozen=True)
class Supervised(WithTestSet):
    """A task with a loss of your own.

        loss(outputs, targets)

    takes what a model gives for a mini-batch (b, ...) and the batch's targets (b, ...), and returns the mean loss () or
    the losses of the samples, whose mean is taken. `outputs` is what a model is told to give for a sample. Every metric
    takes outputs and targets of a whole set; NaN means that it is not defined there.
    """

    train: Samples
    val: Samples | None
    test: Samples
    loss: Loss
    outputs: int = 1
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    step_columns: ClassVar[tuple[str, ...]] = ("train/loss", "grad_norm/x", "grad_norm/e", "ascent_gain")

    @property
    def classes(self) -> int:  # type: ignore[override]
        """The number of a model's outputs."""
        return self.outputs

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of each row: (K, b, ...), (K, b, ...) -> (K,)."""
        outputs = self.shaped(outputs, targets)
        if len(outputs) == 1:
            return self._mean_loss(outputs[0], targets[0]).view(1)
        losses: Tensor = torch.vmap(self._mean_loss)(outputs, targets)
        return losses

    def _mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(outputs, targets).mean()

    def sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """See `WithTestSet`."""
        return {"loss": self.losses(outputs, targets) * targets.shape[1]}

    def of_step(self, result: StepResult, labels: Tensor) -> list[Tensor]:  # noqa: ARG002
        """Loss at x, both gradient norms, and f(e) - f(x)."""
        x, e = result.x, result.e
        return [x.loss, x.norm, e.norm, e.loss - x.loss]


def mean_absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean of |output - target|."""
    return (outputs - targets).abs().mean()


def r_squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """R^2 = 1 - sum (target - output)^2 / sum (target - mean target)^2; NaN if all targets are equal."""
    total = (targets - targets.mean(0)).square().sum()
    share = 1 - (targets - outputs).square().sum() / total
    return torch.where(total > 0, share, torch.nan)


@dataclass(frozen=True)
class Regression(Supervised):
    """A task whose targets (N,) or (N, ...) are numbers; loss and metrics take the outputs in the targets' shape.

    Measures `mae`, the mean absolute error, and `r2`, the share of the variance that is explained.
    """

    loss: Loss = F.mse_loss
    outputs: int = 0  # follows from the targets
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"mae": mean_absolute_error, "r2": r_squared})

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", self.train.targets[:1].numel())

    def shaped(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The outputs in the targets' shape: torch would broadcast (b, 1) against (b,) without a word."""
        if outputs.numel() != targets.numel():
            raise ConfigError(
                "model",
                f"it gives outputs {tuple(outputs.shape[1:])} for targets {tuple(targets.shape[1:])} of a mini-batch",
            )
        return outputs.reshape(targets.shape)
