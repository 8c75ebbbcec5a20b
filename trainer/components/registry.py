"""The names that a config may use, and which config fields each of them reads.

Imports neither torch nor ray nor wandb: `plan`, `status` and `table` validate thousands of configs with it in a
blink. What a name stands for is imported from `target` only where a trial is trained. A user's own parts are found
by `trainer.components.plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from polysweep.trainer.components.component import AHEAD, AUGMENTATIONS, DEFAULT_BASE, REQUIRED, Component
from polysweep.trainer.components.family import FAMILY_OPTIMIZERS, FAMILY_SCHEDULERS
from polysweep.trainer.components.options import (
    AccumulatorOptions,
    AdamOptions,
    LogisticOptions,
    MLPOptions,
    MomentOptions,
    MultiStepOptions,
    OneCycleOptions,
    Options,
    PublishedOptions,
    RidgeOptions,
    StepOptions,
    WarmupOptions,
)
from polysweep.trainer.errors import ConfigError

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
    example `{"mae": "minimize"}`; by default the accuracies top1 and top5, and ece.

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
_HEAVY: Final = {"momentum": REQUIRED}  # without momentum, decoupled weight decay is coupled weight decay
_SHARPNESS: Final = {
    "base": DEFAULT_BASE,
    "rho": REQUIRED,
    "rho_schedule": "constant",
    "batchnorm_statistics": "both",
}
OWN_STEP_SIZE: Final = "own"
"""The scheduler of an optimizer that chooses its step size itself."""
_ADAM: Final[Any] = {"options": AdamOptions, "schedulers": AHEAD, "rowwise_options": True}

_TWO_PASSES: Final = {"batchnorm_statistics": "both"}
_PUBLISHED: Final[Any] = {"fixes": ("rho", "rho_schedule"), "optimizers": ("usam",), "along_gradient": True}
_CONVEX: Final[Any] = {
    "check": "polysweep.trainer.convex.coverage:require_covered",
    "augmentations": (),
    "precisions": ("float64",),
    "models": ("linear",),
}

_LABELS: Final = {"label_smoothing": 0.0, "label_noise": 0.0}
_CIFAR: Final = {"augmentation": "crop+flip", **_LABELS}


def _planned(attribute: str, options: type[Options], **uses: Any) -> Component:
    """A scheduler whose step sizes follow from the step and the number of all steps."""
    return Component(
        f"polysweep.trainer.schedulers.planned:{attribute}",
        uses={"lr": REQUIRED, **uses},
        options=options,
        check="polysweep.trainer.schedulers.epochs:require_within_epochs",
    )


def _adaptive(name: str, attribute: str, options: type[Options]) -> Component:
    """An adaptive optimizer, of a family of its own."""
    return Component(
        f"polysweep.trainer.optimizers.adaptive:{attribute}",
        uses={"rho": REQUIRED, **_TWO_PASSES},
        options=options,
        family=name,
        schedulers=AHEAD,
        rowwise_options=True,
    )


def _sharpness_aware() -> Component:
    """USAM and SAM, which can be rows of one stack; with another base, of a family by that base."""
    on_sgd = "polysweep.trainer.optimizers.sam:SharpnessAware"
    on_adam = Component(
        "polysweep.trainer.optimizers.adam:SharpnessAwareAdam", uses=_SHARPNESS, family="sam-adam", **_ADAM
    )
    return Component(
        on_sgd,
        uses={**_SHARPNESS, **_DESCENT},
        family="sam",
        bases={
            "sgdw": Component(on_sgd, uses={**_SHARPNESS, **_HEAVY}, family="sam"),
            "adam": on_adam,
            "adamw": on_adam,
        },
    )


TASKS: Final[Mapping[str, Component]] = {
    "digits": Component(
        "polysweep.trainer.tasks.digits:digits",
        uses={"augmentation": "none", **_LABELS},
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
    "sgdw": Component("polysweep.trainer.optimizers.sam:SGD", uses=_HEAVY, family="sgd"),
    "adam": Component("polysweep.trainer.optimizers.adam:Adam", family="adam", **_ADAM),
    "adamw": Component("polysweep.trainer.optimizers.adam:Adam", family="adam", **_ADAM),
    "usam": _sharpness_aware(),
    "sam": _sharpness_aware(),
    **FAMILY_OPTIMIZERS,
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
    OWN_STEP_SIZE: Component("polysweep.trainer.schedulers.cosine:Own", only_if_named=True),
    "step": _planned("Step", StepOptions),
    "multistep": _planned("MultiStep", MultiStepOptions),
    "warmup-cosine": _planned("WarmupCosine", WarmupOptions, lr_min=0.0),
    "one-cycle": _planned("OneCycle", OneCycleOptions),
    "polyak": Component(
        "polysweep.trainer.schedulers.polyak:Polyak", uses={"gamma_b": 1.0, "lower_bound": 0.0}, along_gradient=True
    ),
    **FAMILY_SCHEDULERS,
    "polyak-deterministic": Component(
        "polysweep.trainer.schedulers.polyak:DeterministicPolyak", needs=("f_star",), along_gradient=True
    ),
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
