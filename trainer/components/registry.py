"""The names that a config may use, and which config fields each of them reads.

Imports neither torch nor ray nor wandb: `plan`, `status` and `table` validate thousands of configs with it in a
blink. What a name stands for is imported from `target` only where a trial is trained. A user's own parts are found
by `trainer.components.plugins`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from polysweep.trainer.components.options import (
    AccumulatorOptions,
    LogisticOptions,
    MLPOptions,
    MomentOptions,
    Options,
    PublishedOptions,
    RidgeOptions,
)
from polysweep.trainer.errors import ConfigError


class Required:
    """Marks a field without a default."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = Required()


AUGMENTATIONS: Final = ("none", "crop+flip", "crop+flip+cutout")


ACCURACIES: Final[Mapping[str, str]] = {"top1": "maximize", "top5": "maximize"}


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
    version: int | None = None  # of a user's own part: hashed into trial ids, raised when its numbers change
    source: str = ""  # of a user's own part: the hash of its source when it was imported; not a part of ids
    # of a task:
    train_size: int = 0  # images of its training set, so that `plan` can refuse a larger batch; 0: known when loaded
    smallest_class: int = 0  # training images of its rarest class, so that none is emptied by val_fraction
    augmentations: tuple[str, ...] = AUGMENTATIONS
    input_shape: tuple[int, ...] = ()  # of one input, (C, H, W) of an image; empty: known when loaded
    classes: int = 0
    metrics: Mapping[str, str] | None = None  # measured besides the loss, and the direction; None: the accuracies
    prepare: str = ""  # `module:function` of the data folder: decodes, or downloads, the data if that is not done yet
    check: str = ""  # `module:function` of a config: raises `ConfigError` if the task cannot train it
    problem: str = ""  # of a convex task with known constants: its kind in `trainer.convex.problem`
    precisions: tuple[str, ...] = ()  # valid ones, the first the default; empty: all
    models: tuple[str, ...] = ()  # valid ones; empty: all
    # of an optimizer:
    schedulers: tuple[str, ...] = ()  # valid ones; empty: all
    rowwise_options: bool = False  # rows of one stack may differ in its options
    # of a scheduler:
    fixes: tuple[str, ...] = ()  # config fields of the optimizer that it chooses itself
    optimizers: tuple[str, ...] = ()  # valid ones; empty: all
    needs: tuple[str, ...] = ()  # constants of a convex task

    @property
    def directions(self) -> Mapping[str, str]:
        """By what a task with a test set measures besides the loss, `maximize` or `minimize`."""
        return ACCURACIES if self.metrics is None else self.metrics

    def load(self) -> Any:
        """Import what the name stands for."""
        return load(self.target)


def load(target: str) -> Any:
    """The attribute at `module:attribute`."""
    module, _, attribute = target.partition(":")
    return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))


T = TypeVar("T", bound=Callable[..., Any])


def declare(
    *,
    version: int = 1,
    uses: Mapping[str, Any] | None = None,
    options: type[Options] = Options,
    train_size: int = 0,
    smallest_class: int = 0,
    augmentations: tuple[str, ...] = AUGMENTATIONS,
    input_shape: tuple[int, ...] = (),
    classes: int = 0,
    metrics: Mapping[str, str] | None = None,
) -> Callable[[T], T]:
    """Say of a task, model, optimizer or scheduler of your own what a config has to know of it.

    `version` is part of the ids of its trials: raise it when its numbers change. `uses` maps config fields that it
    reads to their default, or to `REQUIRED`. `options` are its `*_options`. The rest is for tasks, so that mistakes
    are found before the data is loaded: samples of the training set and of its rarest class, valid augmentations, the
    shape of an input, the number of classes (or outputs), and what it measures besides the loss with the direction, for
    example `{"mae": "minimize"}`; by default the accuracies top1 and top5.

    Example:

        @declare(version=2, uses={"lr": REQUIRED})
        class Halving(Scheduler): ...
    """

    arguments = {**locals()}
    try:
        declared = Declaration(**arguments)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"declare({first['loc'][0]}=...)", f"{first['msg']} (got {first['input']!r})") from None

    def attach(part: T) -> T:
        part.polysweep = declared  # type: ignore[attr-defined]
        return part

    return attach


MetricName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
"""`val/` or `test/` comes before it; the loss is always measured."""


class Declaration(BaseModel):
    """What `declare` says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Annotated[int, Field(ge=1)] = 1
    uses: dict[str, Any] | None = None
    options: type[Options] = Options
    train_size: Annotated[int, Field(ge=0)] = 0
    smallest_class: Annotated[int, Field(ge=0)] = 0
    augmentations: tuple[Literal[AUGMENTATIONS], ...] = AUGMENTATIONS  # type: ignore[valid-type]
    input_shape: tuple[int, ...] = ()
    classes: Annotated[int, Field(ge=0)] = 0
    metrics: dict[MetricName, Literal["maximize", "minimize"]] | None = None


_DESCENT: Final = {"momentum": 0.0}
_SHARPNESS: Final = {
    "rho": REQUIRED,
    "rho_schedule": "constant",
    "batchnorm_statistics": "both",
    **_DESCENT,
}

_TWO_PASSES: Final = {"batchnorm_statistics": "both"}
_PUBLISHED: Final[Any] = {"fixes": ("rho", "rho_schedule"), "optimizers": ("usam",)}
_CONVEX: Final[Any] = {
    "check": "polysweep.trainer.convex.coverage:require_covered",
    "augmentations": (),
    "precisions": ("float64",),
    "models": ("linear",),
}

_CIFAR: Final = {"augmentation": "crop+flip", "label_smoothing": 0.0}


def _adaptive(name: str, attribute: str, options: type[Options]) -> Component:
    """An adaptive optimizer, of a family of its own."""
    return Component(
        f"polysweep.trainer.optimizers.adaptive:{attribute}",
        uses={"rho": REQUIRED, **_TWO_PASSES},
        options=options,
        family=name,
        schedulers=("constant", "cosine"),
        rowwise_options=True,
    )


TASKS: Final[Mapping[str, Component]] = {
    "digits": Component(
        "polysweep.trainer.tasks.digits:digits",
        uses={"augmentation": "none", "label_smoothing": 0.0},
        train_size=1437,
        smallest_class=139,
        augmentations=("none",),
        input_shape=(1, 8, 8),
        classes=10,
    ),
    "cifar10": Component(
        "polysweep.trainer.tasks.cifar:CIFAR10",
        uses=_CIFAR,
        train_size=50_000,
        smallest_class=5_000,
        input_shape=(3, 32, 32),
        classes=10,
        prepare="polysweep.trainer.tasks.cifar:CIFAR10.prepare",
    ),
    "cifar100": Component(
        "polysweep.trainer.tasks.cifar:CIFAR100",
        uses=_CIFAR,
        train_size=50_000,
        smallest_class=500,
        input_shape=(3, 32, 32),
        classes=100,
        prepare="polysweep.trainer.tasks.cifar:CIFAR100.prepare",
    ),
    "ridge": Component("polysweep.trainer.convex.task:ridge", options=RidgeOptions, problem="ridge", **_CONVEX),
    "logistic": Component(
        "polysweep.trainer.convex.task:logistic", options=LogisticOptions, problem="logistic", **_CONVEX
    ),
}
MODELS: Final[Mapping[str, Component]] = {
    "resnet8": Component("polysweep.trainer.models:resnet8"),
    "resnet20": Component("polysweep.trainer.models:resnet20"),
    "resnet32": Component("polysweep.trainer.models:resnet32"),
    "mlp": Component("polysweep.trainer.models:mlp", options=MLPOptions),
    "linear": Component("polysweep.trainer.models:linear"),
}
OPTIMIZERS: Final[Mapping[str, Component]] = {
    "sgd": Component("polysweep.trainer.optimizers.sam:SGD", uses=_DESCENT, family="sgd"),
    "usam": Component("polysweep.trainer.optimizers.sam:SharpnessAware", uses=_SHARPNESS, family="sam"),
    "sam": Component("polysweep.trainer.optimizers.sam:SharpnessAware", uses=_SHARPNESS, family="sam"),
    "adasam": _adaptive("adasam", "AdaSAM", MomentOptions),
    "lightsam-i": _adaptive("lightsam-i", "LightSAM1", AccumulatorOptions),
    "lightsam-ii": _adaptive("lightsam-ii", "LightSAM2", AccumulatorOptions),
    "lightsam-iii": _adaptive("lightsam-iii", "LightSAM3", MomentOptions),
    "sa-sam": Component(
        "polysweep.trainer.optimizers.adaptive:SASAM", uses=_TWO_PASSES, family="sa-sam", schedulers=("constant",)
    ),
}
SCHEDULERS: Final[Mapping[str, Component]] = {
    "constant": Component("polysweep.trainer.schedulers.cosine:Constant", uses={"lr": REQUIRED}),
    "cosine": Component("polysweep.trainer.schedulers.cosine:Cosine", uses={"lr": REQUIRED, "lr_min": 0.0}),
    "polyak": Component("polysweep.trainer.schedulers.polyak:Polyak", uses={"gamma_b": 1.0, "lower_bound": 0.0}),
    "polyak-deterministic": Component("polysweep.trainer.schedulers.polyak:DeterministicPolyak", needs=("f_star",)),
    "andriushchenko2022": Component(
        "polysweep.trainer.convex.baseline_schedulers:Published",
        options=PublishedOptions,
        needs=("L", "L_max", "mu"),
        **_PUBLISHED,
    ),
    "khanh2024": Component("polysweep.trainer.convex.baseline_schedulers:Published", needs=("L",), **_PUBLISHED),
    "oikonomou2025": Component(
        "polysweep.trainer.convex.baseline_schedulers:Published",
        options=PublishedOptions,
        needs=("L", "L_max", "mu"),
        **_PUBLISHED,
    ),
}
REGISTRY: Final[Mapping[str, Mapping[str, Component]]] = {
    "task": TASKS,
    "model": MODELS,
    "optimizer": OPTIMIZERS,
    "scheduler": SCHEDULERS,
}


CONDITIONAL: Final = frozenset(key for names in REGISTRY.values() for part in names.values() for key in part.uses)
"""The config fields that only some components read."""


def import_paths() -> list[str]:
    """Where the user's own parts are looked for besides the installed packages: the working directory, last."""
    folder = working_folder()
    return [folder] if folder else []


def working_folder() -> str:
    """The working directory, where relative paths of the user's own parts lead; empty if it has been removed."""
    with suppress(FileNotFoundError):
        return str(Path.cwd())
    return ""
