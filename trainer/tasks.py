"""Tasks: a data set, its split and its loss."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.augment import crop_and_flip, cut_out
from trainer.config import TrialConfig
from trainer.convex import Convex
from trainer.data import Images, Normalisation, epoch_order, stream
from trainer.plugins import component, is_own
from trainer.registry import ConfigError

DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64}
"""Of a stack's rows, inputs, statistics and losses, by precision."""

DIGITS_TEST_SIZE = 360


@dataclass(frozen=True)
class Classification:
    """A classification task with cross-entropy loss; `val` is None where nothing is held out.

    `cutout` is the side of the square of the augmentation `crop+flip+cutout`.
    """

    train: Images
    val: Images | None
    test: Images
    normalise: Normalisation
    classes: int
    cutout: int = 16

    @property
    def size(self) -> int:
        """Images of the training set."""
        return len(self.train)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Mini-batches of one pass over the training set."""
        return math.ceil(self.size / batch_size)

    def order(self, seeds: Sequence[int], epoch: int, batch_size: int) -> Tensor:  # noqa: ARG002
        """The images of an epoch's mini-batches, one after the other: (K, size), each image once."""
        return epoch_order(seeds, epoch, self.size)

    @property
    def input_shape(self) -> tuple[int, ...]:
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

    def mini_batch(self, order: Tensor, draws: Tensor | None, augmentation: str | None) -> tuple[Tensor, Tensor]:
        """Training images (K, b, C, H, W) and labels (K, b) at the positions `order` (K, b) of the training set.

        `draws` (K, b, 5) are those of `trainer.augment.epoch_draws`, None without augmentation.
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


def digits(data: Path, val_fraction: float) -> Classification:  # noqa: ARG001
    """scikit-learn's bundled handwritten digits: 1,797 images, 8x8, grey values 0 to 16.

    360 images are the test set and 1,437 the training set, stratified by class, the same for every seed (drawn from
    the stream `split` of seed 0). `val_fraction` of the training set is held out the same way. Normalised by mean and
    standard deviation of the training pixels. No augmentation: a shifted digit leaves the frame and a mirrored one is
    another sign. Needs no data folder.
    """
    table = torch.from_numpy(np.loadtxt(_digits_file(), delimiter=",", dtype=np.uint8))
    pixels, labels = table[:, :-1].reshape(-1, 8, 8, 1), table[:, -1].long()
    train, test = split(torch.arange(len(labels)), labels, DIGITS_TEST_SIZE)
    train, held_out = hold_out(train, labels, val_fraction)
    seen = pixels[train].double()
    normalise = Normalisation(seen.mean().view(1), seen.std(correction=0).view(1))
    val = None if held_out is None else Images(pixels, labels, held_out)
    return Classification(Images(pixels, labels, train), val, Images(pixels, labels, test), normalise, classes=10)


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


Task = Classification | Convex


def load_task(config: TrialConfig, data: str | Path = "", device: torch.device | str = "cpu") -> Task:
    """The config's task with its data on `device`; loaded once per process, so that reused workers share it.

    `data` is the folder of the data sets. Raises `ConfigError` where a batch is larger than the training set.
    """
    options = tuple(sorted(config.task_options.items()))
    task = _load(config.task, str(data), config.val_fraction, options, torch.device(device), config.precision)
    if config.batch_size > task.size:
        raise ConfigError(
            "batch_size", f"{config.batch_size} is larger than the {task.size} training images of {config.task}"
        )
    return task


@lru_cache(maxsize=4)
def _load(
    name: str,
    data: str,
    val_fraction: float,
    options: tuple[tuple[str, Any], ...],
    device: torch.device,
    precision: str,
) -> Task:
    part = component("task", name)
    if part.problem:
        return cast("Task", part.load()(name, dict(options)).to(device, DTYPES[precision]))
    task: Classification = part.load()(Path(data), val_fraction, **dict(options))
    if is_own("task", name):
        _check_own(name, task, val_fraction)
    return task.to(device, DTYPES[precision])


def _check_own(name: str, task: Any, val_fraction: float) -> None:
    """Raise `ConfigError` where a user's task is not what the trainer takes."""
    if not isinstance(task, Classification):
        kind = type(task).__name__
        raise ConfigError("task", f"{name!r} gives a {kind}, expected a trainer.tasks.Classification")
    if (task.val is None) != (not val_fraction):
        what = "nothing" if task.val is None else "images"
        raise ConfigError("task", f"{name!r} holds out {what} for val_fraction = {val_fraction:g}: docs/extending.md")
    for split, found in (("train", task.train), ("val", task.val), ("test", task.test)):
        if found is None and split == "val":
            continue
        if not isinstance(found, Images) or found.images.dtype != torch.uint8 or found.images.dim() != 4:
            raise ConfigError("task", f"{name!r}: {split} has to be Images of shape (N, H, W, C) in uint8")
        if found.labels.dtype != torch.int64 or found.labels.shape != found.images.shape[:1]:
            raise ConfigError("task", f"{name!r}: the labels of {split} have to be int64, one per image")
        if not len(found):
            raise ConfigError("task", f"{name!r}: {split} has no image")
        low, high = int(found.labels.min()), int(found.labels.max())
        if low < 0 or high >= task.classes:
            raise ConfigError(
                "task", f"{name!r}: the labels of {split} are {low} to {high}, expected 0 to {task.classes - 1}"
            )
    declared, size = component("task", name).train_size, len(task.train) + (len(task.val) if task.val else 0)
    if declared and declared != size:
        raise ConfigError("task", f"{name!r} declares a train_size of {declared}, it has {size} training images")


def _digits_file() -> Path:
    """The data file in the installed scikit-learn, whose import alone would cost every worker a second."""
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.submodule_search_locations, "scikit-learn is a dependency"
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
