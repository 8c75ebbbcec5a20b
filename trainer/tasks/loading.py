"""Loading a config's task, once per process, and checking a user's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from polysweep.trainer.components.plugins import component, is_own
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.task import DTYPES, Task
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.images import Images


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
    task: Task = component("task", name).load()(Path(data), val_fraction, **dict(options))
    if is_own("task", name):
        _check_own(name, task, val_fraction)
    return task.to(device, DTYPES[precision])


def _check_own(name: str, task: Any, val_fraction: float) -> None:
    """Raise `ConfigError` where a user's task is not what the trainer takes."""
    if not isinstance(task, Classification):
        kind = type(task).__name__
        raise ConfigError("task", f"{name!r} gives a {kind}, expected a polysweep.Classification")
    if (task.val is None) != (not val_fraction):
        what = "nothing" if task.val is None else "images"
        raise ConfigError("task", f"{name!r} holds out {what} for val_fraction = {val_fraction:g}: docs/extending.md")
    for split, images in (("train", task.train), ("val", task.val), ("test", task.test)):
        if images is None and split == "val":
            continue
        if not isinstance(images, Images) or images.images.dtype != torch.uint8 or images.images.dim() != 4:
            raise ConfigError("task", f"{name!r}: {split} has to be Images of shape (N, H, W, C) in uint8")
        if images.labels.dtype != torch.int64 or images.labels.shape != images.images.shape[:1]:
            raise ConfigError("task", f"{name!r}: the labels of {split} have to be int64, one per image")
        if not len(images):
            raise ConfigError("task", f"{name!r}: {split} has no image")
        low, high = int(images.labels.min()), int(images.labels.max())
        if low < 0 or high >= task.classes:
            raise ConfigError(
                "task", f"{name!r}: the labels of {split} are {low} to {high}, expected 0 to {task.classes - 1}"
            )
    declared, size = component("task", name).train_size, len(task.train) + (len(task.val) if task.val else 0)
    if declared and declared != size:
        raise ConfigError("task", f"{name!r} declares a train_size of {declared}, it has {size} training images")
