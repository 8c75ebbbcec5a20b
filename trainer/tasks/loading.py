"""Loading a config's task, once per process, and checking a user's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from polysweep.trainer.components.component import OF_CLASSES
from polysweep.trainer.components.plugins import component, is_own
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.task import DTYPES, Task
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.images import Images
from polysweep.trainer.tasks.samples import Samples
from polysweep.trainer.tasks.supervised import WithTestSet


def load_task(config: TrialConfig, data: str | Path = "", device: torch.device | str = "cpu") -> Task:
    """The config's task with its data on `device`; loaded once per process, so that reused workers share it.

    `data` is the folder of the data sets. Raises `ConfigError` if a batch is larger than the training set.
    """
    options = tuple(sorted(config.task_options.items()))
    task = _load(config.task, str(data), config.val_fraction, options, torch.device(device), config.precision)
    if config.batch_size > task.size:
        raise ConfigError(
            "batch_size", f"{config.batch_size} is larger than the {task.size} training samples of {config.task}"
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
    """Raise `ConfigError` if a user's task is not what the trainer takes."""
    if not isinstance(task, WithTestSet):
        kind = type(task).__name__
        raise _refused(name, f" gives a {kind}, expected a polysweep.Classification, Regression or Supervised")
    if (task.val is None) != (not val_fraction):
        what = "nothing" if task.val is None else "samples"
        raise _refused(name, f" holds out {what} for val_fraction = {val_fraction:g}: docs/extending.md")
    for split in ("train", "val", "test") if val_fraction else ("train", "test"):
        samples = getattr(task, split)
        _check_samples(name, split, samples)
        _check_inputs(name, split, task, samples)
        _check_targets(name, split, task, samples)
    _check_declared(name, task)


def _check_samples(name: str, split: str, samples: Any) -> None:
    if not isinstance(samples, Samples):
        raise _refused(name, f": {split} is a {type(samples).__name__}, expected polysweep.Samples or Images")
    if not len(samples):
        raise _refused(name, f": {split} has no sample")
    if len(samples.inputs) != len(samples.targets):
        raise _refused(name, f": {split} has {len(samples.inputs)} inputs, but {len(samples.targets)} targets")


def _check_inputs(name: str, split: str, task: WithTestSet, samples: Samples) -> None:
    """Images for a task that normalises them, else numbers, all in one shape."""
    inputs, normalises = samples.inputs, getattr(task, "normalise", None) is not None
    if normalises or isinstance(samples, Images):
        if not normalises or inputs.dtype != torch.uint8 or inputs.dim() != 4:
            images = "Images of shape (N, H, W, C) in uint8 with a Normalisation"
            raise _refused(name, f": {split} has to be {images}, or Samples of floats without one")
    elif not inputs.is_floating_point() and inputs.dtype != torch.int64:
        raise _refused(name, f": the inputs of {split} are {inputs.dtype}; expected floats, or int64 for indices")
    if inputs.shape[1:] != task.train.inputs.shape[1:]:
        shapes = f"{tuple(inputs.shape[1:])}, those of train {tuple(task.train.inputs.shape[1:])}"
        raise _refused(name, f": the inputs of {split} have shape {shapes}")
    _check_finite(name, f"the inputs of {split}", inputs)


def _check_targets(name: str, split: str, task: WithTestSet, samples: Samples) -> None:
    targets = samples.targets
    if not isinstance(task, Classification):
        _check_finite(name, f"the targets of {split}", targets)
        return
    if targets.dtype != torch.int64 or targets.dim() != 1:
        raise _refused(name, f": the labels of {split} have to be int64, one per sample")
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= task.classes:
        raise _refused(name, f": the labels of {split} are {low} to {high}, expected 0 to {task.classes - 1}")


def _check_finite(name: str, what: str, values: torch.Tensor) -> None:
    if values.is_floating_point() and not values.isfinite().all():
        sample = int((~values.isfinite()).nonzero()[0, 0])
        raise _refused(name, f": {what} are not all finite: the first is that of sample {sample}")


def _check_declared(name: str, task: WithTestSet) -> None:
    """Whether what `declare` says of the task is so."""
    declared, size = component("task", name), len(task.train) + (len(task.val) if task.val else 0)
    if declared.train_size and declared.train_size != size:
        raise _refused(name, f" declares a train_size of {declared.train_size}, it has {size} training samples")
    for what, declaration, is_so in (
        ("an input_shape", declared.input_shape, task.input_shape),
        ("classes", declared.classes, task.classes),
    ):
        if declaration and declaration != is_so:
            raise _refused(name, f" declares {what} of {declaration}, it is {is_so}")
    if "label_noise" in declared.uses and not isinstance(task, Classification):
        raise _refused(name, f" declares the use of label_noise, but a {type(task).__name__} has no class labels")
    for metric in declared.directions:
        if metric not in task.measured:
            there = ", ".join(f"{metric!r}" for metric in task.measured)
            raise _refused(
                name,
                f" declares the metric {metric!r} (by default {', '.join(OF_CLASSES)}), it measures {there or 'none'}",
            )


def _refused(name: str, reason: str) -> ConfigError:
    return ConfigError("task", f"{name!r}{reason}")
