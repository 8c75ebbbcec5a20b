"""What is known of a task, model, optimizer or scheduler before it is imported."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from polysweep.trainer.components.options import Options
from polysweep.trainer.errors import ConfigError, expected
from polysweep.trainer.text import brief


class Required:
    """Marks a field without a default."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = Required()


DEFAULT_BASE: Final = "sgd"
"""The `base` of an optimizer's descent step unless the config has another one."""
AHEAD: Final = ("constant", "cosine", "step", "multistep", "warmup-cosine", "one-cycle")
"""Schedulers whose step sizes are known before the training: for steps that are not along the gradient."""
AUGMENTATIONS: Final = ("none", "crop+flip", "crop+flip+cutout")
OF_CLASSES: Final[Mapping[str, str]] = {"top1": "maximize", "top5": "maximize", "ece": "minimize"}
"""What every classification task measures besides the loss, and which direction is better."""


@dataclass(frozen=True)
class Component:
    """One name of the registry.

    `uses` maps the conditional config fields that the component reads to their default (or `REQUIRED`); a field
    that no component of a config reads must be absent from it. `target` is `module:attribute`. Components of one
    `family` can be rows of one stack.
    """

    target: str
    uses: Mapping[str, Any] = field(default_factory=dict)
    options: type[Options] = Options
    family: str = ""
    check: str = ""  # `module:function` of a config: raises `ConfigError` if the component cannot train it
    version: int | None = None  # of a user's own part: hashed into trial ids, raised when its numbers change
    source: str = ""  # of a user's own part: the hash of its source when it was imported; not a part of ids
    # of a task:
    train_size: int = 0  # images of its training set, so that `plan` can refuse a larger batch; 0: known when loaded
    smallest_class: int = 0  # training images of its rarest class, so that none is emptied by val_fraction
    augmentations: tuple[str, ...] = AUGMENTATIONS
    input_shape: tuple[int, ...] = ()  # of one input, (C, H, W) of an image; empty: known when loaded
    classes: int = 0
    metrics: Mapping[str, str] | None = (
        None  # measured besides the loss, and the direction; None: those of `OF_CLASSES`
    )
    prepare: str = ""  # `module:function` of the data folder: decodes, or downloads, the data if that is not done yet
    problem: str = ""  # of a convex task with known constants: its kind in `trainer.convex.problem`
    precisions: tuple[str, ...] = ()  # valid ones, the first the default; empty: all
    models: tuple[str, ...] = ()  # valid ones; empty: all
    # of an optimizer:
    schedulers: tuple[str, ...] = ()  # valid ones; empty: all
    rowwise_options: bool = False  # rows of one stack may differ in its options
    adapter: str = ""  # `module:function` of what is loaded: makes an optimizer of it that is trained at K = 1
    reads_weight_decay: bool = True
    bases: Mapping[str, Component] = field(default_factory=dict)  # itself with another `base` of its descent step
    # of a scheduler:
    only_if_named: bool = False  # only for optimizers whose `schedulers` name it
    along_gradient: bool = False  # its step size is derived for a step along the gradient
    fixes: tuple[str, ...] = ()  # config fields of the optimizer that it chooses itself
    optimizers: tuple[str, ...] = ()  # valid ones; empty: all
    needs: tuple[str, ...] = ()  # constants of a convex task

    @property
    def directions(self) -> Mapping[str, str]:
        """By what a task with a test set measures besides the loss, `maximize` or `minimize`."""
        return OF_CLASSES if self.metrics is None else self.metrics

    def on(self, base: object) -> Component:
        """The optimizer with `base` as its descent step. Raises `ConfigError` with the valid ones."""
        if base in (None, DEFAULT_BASE) or not self.bases:  # without bases, who gives one is told that it is not used
            return self
        if not isinstance(base, str) or base not in self.bases:
            raise ConfigError("base", f"unknown base {brief(base)}; {expected(base, [DEFAULT_BASE, *self.bases])}")
        return self.bases[base]

    def load(self) -> Any:
        """Import what the name stands for."""
        part = load(self.target)
        return load(self.adapter)(part) if self.adapter else part


def load(target: str) -> Any:
    """The attribute at `module:attribute`."""
    module, _, attribute = target.partition(":")
    return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
