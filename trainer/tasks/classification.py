"""Tasks: a data set, its split and its loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.history import HISTORY_COLUMNS
from polysweep.trainer.optimizers.optimizer import StepResult
from polysweep.trainer.stack.oracles import ModuleOracle, module_oracle
from polysweep.trainer.streams import epoch_order, stream
from polysweep.trainer.task import Monitor, Task
from polysweep.trainer.tasks.augmentation import crop_and_flip, cut_out
from polysweep.trainer.tasks.held_out import HeldOutMonitor
from polysweep.trainer.tasks.images import Images, Normalisation


@dataclass(frozen=True)
class Classification(Task):
    """A classification task with cross-entropy loss; `val` is None if no image is held out.

    `cutout` is the side of the square of the augmentation `crop+flip+cutout`.
    """

    train: Images
    val: Images | None
    test: Images
    normalise: Normalisation
    classes: int
    cutout: int = 16

    columns: ClassVar[tuple[str, ...]] = HISTORY_COLUMNS
    step_columns: ClassVar[tuple[str, ...]] = (
        "train/loss", "train/top1", "train/top5", "grad_norm/x", "grad_norm/e", "ascent_gain",
    )  # fmt: skip

    @property
    def size(self) -> int:  # type: ignore[override]
        """Images of the training set."""
        return len(self.train)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Mini-batches of one pass over the training set."""
        return math.ceil(self.size / batch_size)

    def order(self, seeds: Sequence[int], epoch: int, batch_size: int) -> Tensor:  # noqa: ARG002
        """The images of an epoch's mini-batches, one after the other: (K, size), each image once."""
        return epoch_order(seeds, epoch, self.size)

    @property
    def input_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """(C, H, W) of one image."""
        height, width, channels = self.train.images.shape[1:]
        return channels, height, width

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same task with its data resident on `device` and its inputs in `dtype`."""
        return replace(
            self,
            train=self.train.to(device),
            val=None if self.val is None else self.val.to(device),
            test=self.test.to(device),
            normalise=self.normalise.to(device, dtype),
        )

    def few(self, count: int) -> Self:
        """The first `count` images of each set."""
        val = None if self.val is None else self.val.first(count)
        return replace(self, train=self.train.first(count), val=val, test=self.test.first(count))

    def oracle_and_monitor(
        self, configs: Sequence[TrialConfig], factory_kwargs: Mapping[str, Any]
    ) -> tuple[ModuleOracle, Monitor]:
        """Passes through the model of the configs, with their label smoothing, and an evaluation without it."""
        smoothing = [config.label_smoothing or 0.0 for config in configs]
        by_row = torch.tensor(smoothing, **factory_kwargs) if any(smoothing) else None

        def losses(logits: Tensor, labels: Tensor) -> Tensor:
            expected = (labels.shape[1], self.classes)
            if logits.shape[1:] != expected:
                problem = f"{configs[0].model!r} gives logits {tuple(logits.shape[1:])}, expected (images, classes)"
                raise ConfigError("model", f"{problem} = {expected}")
            return self.losses(logits, labels, by_row)

        oracle = module_oracle(configs, self.input_shape, self.classes, losses, factory_kwargs)
        return oracle, HeldOutMonitor(self, oracle)

    def of_step(self, result: StepResult, labels: Tensor) -> list[Tensor]:
        """Loss and accuracies at x, both gradient norms, and f(e) - f(x)."""
        x, e = result.x, result.e
        top1, top5 = (count / labels.shape[1] for count in self.hits(x.logits, labels))
        return [x.loss, top1, top5, x.norm, e.norm, e.loss - x.loss]

    def mini_batch(self, order: Tensor, draws: Tensor | None, augmentation: str | None) -> tuple[Tensor, Tensor]:
        """Training images (K, b, C, H, W) and labels (K, b) at the positions `order` (K, b) of the training set.

        `draws` (K, b, 5) are those of `trainer.tasks.augmentation.epoch_draws`, None without augmentation.
        """
        at = self.train.positions(order)
        images = self.train.images[at.reshape(-1)]
        if draws is None:
            return self.normalise(images.view(*at.shape, *images.shape[1:])), self.train.labels[at]
        draws = draws.reshape(-1, draws.shape[2])
        inputs = self.normalise(crop_and_flip(images, draws))
        if augmentation == "crop+flip+cutout":
            inputs = cut_out(inputs, draws, self.cutout)
        return inputs.view(*at.shape, *inputs.shape[1:]), self.train.labels[at]

    @staticmethod
    def losses(logits: Tensor, labels: Tensor, smoothing: Tensor | None = None) -> Tensor:
        """Mean cross-entropy of each row: (K, b, classes), (K, b) -> (K,).

        With `smoothing` s (K,): (1 - s) * nll + s * mean over classes of -log p, as torch's label_smoothing; a row
        with s = 0 has bitwise the value that it has without.
        """
        rows, size, classes = logits.shape
        each = F.cross_entropy(logits.reshape(-1, classes), labels.reshape(-1), reduction="none")
        nll = each.view(rows, size).mean(1)
        if smoothing is None:
            return nll
        uniform = -F.log_softmax(logits, dim=2).mean((1, 2))
        return torch.where(smoothing > 0, (1 - smoothing) * nll + smoothing * uniform, nll)

    @staticmethod
    def hits(logits: Tensor, labels: Tensor, k: int = 5) -> tuple[Tensor, Tensor]:
        """How many labels are the highest logit, and are among the k highest: (K,) each, in the logits' dtype."""
        top = logits.topk(min(k, logits.shape[2]), dim=2).indices == labels.unsqueeze(2)
        return top[..., 0].sum(1, dtype=logits.dtype), top.sum((1, 2), dtype=logits.dtype)

    def worst_loss(self, logits: Tensor) -> Tensor:
        """The sum over images of the loss of the least likely class: (K, b, classes) -> (K,).

        No label changes it. Where it is finite, so is the loss of any labels.
        """
        return -F.log_softmax(logits, dim=2).amin(2).sum(1)


def hold_out(rows: Tensor, labels: Tensor, val_fraction: float) -> tuple[Tensor, Tensor | None]:
    """The training rows that stay, and those held out for validation: stratified, the same for every seed."""
    return split(rows, labels, round(val_fraction * len(rows))) if val_fraction else (rows, None)


def split(rows: Tensor, labels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """`rows` without `size` of them, and those: stratified by label, the same on every call and platform.

    Shuffled, sorted by class, and every (n / size)-th held out, so that each class gives its share to within one.
    Raises `ConfigError` where a class would be empty on either side.
    """
    order = rows[torch.randperm(len(rows), generator=stream(0, "split", size))]
    order = order[torch.argsort(labels[order], stable=True)]
    share = torch.arange(len(order) + 1) * size // len(order)
    picked = share[1:] > share[:-1]
    kept, held_out = order[~picked].sort().values, order[picked].sort().values
    classes = labels[rows].unique()
    for side in (kept, held_out):
        missing = set(classes.tolist()) - set(labels[side].tolist())
        if missing:
            raise ConfigError("val_fraction", f"holding out {size} of {len(rows)} images empties class {min(missing)}")
    return kept, held_out
