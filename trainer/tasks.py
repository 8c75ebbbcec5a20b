"""Tasks: a data set, its split and its loss."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.data import Images, Normalisation, stream
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

    360 images are the test set and 1,437 the training set, stratified by class, the same for every seed (drawn from
    the stream `split` of seed 0). `val_fraction` of the training set is held out the same way. Normalised by mean and
    standard deviation of the training pixels. No augmentation: a shifted digit leaves the frame and a mirrored one is
    another sign.
    """
    table = torch.from_numpy(np.loadtxt(_digits_file(), delimiter=",", dtype=np.uint8))
    pixels, labels = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].long()
    train, test = split(torch.arange(len(labels)), labels, DIGITS_TEST_SIZE)
    held_out = None
    if val_fraction:
        train, held_out = split(train, labels, round(val_fraction * len(train)))

    def subset(rows: Tensor) -> Images:
        return Images(pixels[rows].contiguous(), labels[rows])

    seen = pixels[train].double()
    normalise = Normalisation(seen.mean().view(1, 1, 1), seen.std(correction=0).view(1, 1, 1))
    val = None if held_out is None else subset(held_out)
    return Classification(subset(train), val, subset(test), normalise, classes=10)


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


def _digits_file() -> Path:
    """The data file in the installed scikit-learn, whose import alone would cost every worker a second."""
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.submodule_search_locations, "scikit-learn is a dependency"
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
