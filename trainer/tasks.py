"""Tasks: a data set, its split and its loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn import functional as F

from trainer.data import Images, Normalisation
from trainer.registry import ConfigError

DIGITS_TEST_SIZE = 360


@dataclass(frozen=True)
class Classification:
    """A classification task with cross-entropy loss; `val` is None where nothing is held out."""

    train: Images
    val: Images | None
    test: Images
    normalise: Normalisation
    classes: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(C, H, W) of one image."""
        return tuple(self.train.images.shape[1:])

    def to(self, device: torch.device, dtype: torch.dtype) -> Classification:
        """The same task with its data resident on `device` and its inputs in `dtype`."""
        return Classification(
            self.train.to(device),
            None if self.val is None else self.val.to(device),
            self.test.to(device),
            self.normalise.to(device, dtype),
            self.classes,
        )

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


def digits(val_fraction: float) -> Classification:
    """scikit-learn's bundled handwritten digits: 1,797 images, 8x8, grey values 0 to 16.

    360 images are the test set and 1,437 the training set, stratified by class, the same for every seed
    (`train_test_split` with `random_state=0`). `val_fraction` of the training set is held out the same way.
    Normalised by mean and standard deviation of the training pixels. No augmentation: a shifted digit
    leaves the frame and a mirrored one is another sign.
    """
    bunch = load_digits()
    pixels = torch.from_numpy(bunch.images).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(bunch.target).long()
    everything = torch.arange(len(labels))
    train, test = _split(everything, labels, DIGITS_TEST_SIZE)
    held_out = None
    if val_fraction:
        train, held_out = _split(train, labels, val_fraction)

    def subset(rows: Tensor) -> Images:
        return Images(pixels[rows].contiguous(), labels[rows])

    seen = pixels[train].double()
    normalise = Normalisation(seen.mean().view(1, 1, 1), seen.std(correction=0).view(1, 1, 1))
    val = None if held_out is None else subset(held_out)
    return Classification(subset(train), val, subset(test), normalise, classes=10)


def _split(rows: Tensor, labels: Tensor, size: float) -> tuple[Tensor, Tensor]:
    """(kept, held out), stratified by label and the same on every call."""
    try:
        kept, held_out = train_test_split(rows.numpy(), test_size=size, random_state=0, stratify=labels[rows].numpy())
    except ValueError as error:
        raise ConfigError("val_fraction", f"{size} leaves a class empty: {error}") from None
    return torch.from_numpy(kept), torch.from_numpy(held_out)
