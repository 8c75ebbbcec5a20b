"""Classification: cross-entropy and accuracies, of images or of inputs of any shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from polysweep.trainer.components.component import OF_CLASSES
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.history import CALIBRATION_COLUMNS, HISTORY_COLUMNS
from polysweep.trainer.optimizers.optimizer import StepResult
from polysweep.trainer.tasks.augmentation import crop_and_flip, cut_out
from polysweep.trainer.tasks.images import Normalisation
from polysweep.trainer.tasks.label_noise import noisy
from polysweep.trainer.tasks.samples import Samples
from polysweep.trainer.tasks.supervised import Metric, WithTestSet

BINS: Final = 15
"""Of equal width, of the expected calibration error."""


@dataclass(frozen=True)
class Classification(WithTestSet):
    """A classification task with cross-entropy loss; `val` is None if nothing is held out.

    With `normalise` the sets are `Images`; without it the inputs, of any shape, are taken as they are. `cutout` is the
    side of the square of the augmentation `crop+flip+cutout`.
    """

    train: Samples
    val: Samples | None
    test: Samples
    normalise: Normalisation | None = None
    classes: int = 0
    cutout: int = 16
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    noisy_labels: Tensor | None = None  # (K, size) of the training set, if a row of the stack has label noise

    built_in: ClassVar[tuple[str, ...]] = tuple(OF_CLASSES)
    step_columns: ClassVar[tuple[str, ...]] = (
        "train/loss", "train/top1", "train/top5", "grad_norm/x", "grad_norm/e", "ascent_gain",
    )  # fmt: skip

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of every task with a test set, and the calibration errors; an own metric `ece` replaces them."""
        return tuple(dict.fromkeys((*HISTORY_COLUMNS, *CALIBRATION_COLUMNS, *super().columns)))

    @property
    def input_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Of one input; (C, H, W) of an image."""
        if self.normalise is None:
            return super().input_shape
        height, width, channels = self.train.inputs.shape[1:]
        return channels, height, width

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same task with its data resident on `device` and its inputs in `dtype`."""
        normalise = None if self.normalise is None else self.normalise.to(device, dtype)
        return replace(super().to(device, dtype), normalise=normalise)

    def for_rows(self, configs: Sequence[TrialConfig]) -> Self:
        """With the training labels of every row, if one has label noise; those of `val` and `test` stay as they are."""
        if not any(config.label_noise for config in configs):
            return self
        clean = self.train.targets[self.train.positions(torch.arange(self.size, device=self.train.targets.device))]
        by_row = [noisy(clean, self.classes, config.label_noise or 0.0, config.seed) for config in configs]
        return replace(self, noisy_labels=torch.stack(by_row))

    def inputs(self, inputs: Tensor) -> Tensor:
        """Inputs (..., b, ...) as a model takes them; images are normalised to (..., b, C, H, W)."""
        return inputs if self.normalise is None else self.normalise(inputs)

    def training_losses(
        self, configs: Sequence[TrialConfig], factory_kwargs: Mapping[str, Any]
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Cross-entropy of logits (K, b, classes) with each row's label smoothing."""
        smoothing = [config.label_smoothing or 0.0 for config in configs]
        by_row = torch.tensor(smoothing, **factory_kwargs) if any(smoothing) else None

        def losses(logits: Tensor, labels: Tensor) -> Tensor:
            expected = (labels.shape[1], self.classes)
            if logits.shape[1:] != expected:
                problem = f"{configs[0].model!r} gives logits {tuple(logits.shape[1:])}, expected (images, classes)"
                raise ConfigError("model", f"{problem} = {expected}")
            return self.losses(logits, labels, by_row)

        return losses

    def sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """See `WithTestSet`."""
        top = self.top(outputs, targets)
        top1, top5 = self.hits(top, outputs.dtype)
        loss = self.losses(outputs, targets) * targets.shape[1]
        return {"loss": loss, "top1": top1, "top5": top5, "ece": self.gaps(outputs, top[..., 0])}

    def means(self, totals: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
        """See `WithTestSet`; of `ece` sum_m |B_m| / n |acc(B_m) - conf(B_m)|, Guo et al. 2017, equation 3."""
        return super().means({**totals, "ece": totals["ece"].double().abs().sum(1)}, count)

    def of_step(self, result: StepResult, labels: Tensor) -> list[Tensor]:
        """Loss and accuracies at x, both gradient norms, and f(e) - f(x)."""
        x, e = result.x, result.e
        hits = self.hits(self.top(x.logits, labels), x.logits.dtype)
        top1, top5 = (count / labels.shape[1] for count in hits)
        return [x.loss, top1, top5, x.norm, e.norm, e.loss - x.loss]

    def mini_batch(self, order: Tensor, draws: Tensor | None, augmentation: str | None) -> tuple[Tensor, Tensor]:
        """Training inputs (K, b, ...) and labels (K, b) at the positions `order` (K, b) of the training set.

        `draws` (K, b, 5) are those of `trainer.tasks.augmentation.epoch_draws`, None without augmentation.
        """
        inputs, labels = self._batch(order, draws, augmentation)
        return inputs, labels if self.noisy_labels is None else self.noisy_labels.gather(1, order)

    def _batch(self, order: Tensor, draws: Tensor | None, augmentation: str | None) -> tuple[Tensor, Tensor]:
        """Inputs and labels without noise."""
        if draws is None or self.normalise is None:
            return super().mini_batch(order, draws, augmentation)
        at = self.train.positions(order)
        images = self.train.inputs[at.reshape(-1)]
        draws = draws.reshape(-1, draws.shape[2])
        inputs = self.normalise(crop_and_flip(images, draws))
        if augmentation == "crop+flip+cutout":
            inputs = cut_out(inputs, draws, self.cutout)
        return inputs.view(*at.shape, *inputs.shape[1:]), self.train.targets[at]

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
    def top(logits: Tensor, labels: Tensor, k: int = 5) -> Tensor:
        """Whether the label is the first, second, ... k-th highest logit: (K, b, classes), (K, b) -> (K, b, k)."""
        return logits.topk(min(k, logits.shape[2]), dim=2).indices == labels.unsqueeze(2)

    @staticmethod
    def hits(top: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """How many labels are the highest logit, and are among the k highest: (K, b, k) -> (K,) each."""
        return top[..., 0].sum(1, dtype=dtype), top.sum((1, 2), dtype=dtype)

    @staticmethod
    def gaps(logits: Tensor, is_hit: Tensor) -> Tensor:
        """By bin of the top probability, the sum of probability - hit: (K, b, classes), (K, b) -> (K, 15).

        Bin m is ((m - 1) / 15, m / 15]. Guo et al. 2017 (arXiv 1706.04599), section 2. A sum over a mask and no
        scatter: that would add up in another order in every run on a GPU.
        """
        probability = (logits.amax(2) - logits.logsumexp(2)).exp()
        bins = (probability * BINS).ceil().clamp(max=BINS).unsqueeze(1)
        numbers = torch.arange(1, BINS + 1, device=logits.device, dtype=logits.dtype).view(1, -1, 1)
        return torch.where(bins == numbers, (probability - is_hit.to(logits.dtype)).unsqueeze(1), 0).sum(2)

    def worst(self, outputs: Tensor) -> Tensor:
        """The sum over images of the loss of the least likely class: (K, b, classes) -> (K,).

        No label changes it. Where it is finite, so is the loss of any labels.
        """
        return -F.log_softmax(outputs, dim=2).amin(2).sum(1)
