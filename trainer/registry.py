"""The names that a config may use, and which config fields each of them reads.

Imports neither torch nor ray nor wandb: `plan`, `status` and `table` validate thousands of configs with it in a
blink. What a name stands for is imported from `target` only where a trial is trained.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class UserError(ValueError):
    """Something the user can mend: shown as one line, exit code 2, never a traceback."""


class ConfigError(UserError):
    """A trial config that cannot be trained; `key` is the offending field."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


class Required:
    """Marks a field without a default."""

    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = Required()


class Options(BaseModel):
    """Options of a component: flat, typed, unknown ones refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def number(value: object) -> object:
    """Refuse true and false where a number is meant: pydantic would take them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("Input should be a number, not true or false")
    return value


Count = Annotated[int, BeforeValidator(number), Field(ge=1)]


class MLPOptions(Options):
    """Options of the model `mlp`."""

    hidden: Count = 64  # units per hidden layer
    layers: Annotated[int, BeforeValidator(number), Field(ge=0)] = (
        2  # hidden layers; 0 is softmax regression, which is convex
    )


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
    train_size: int = 0  # of a task: images in its training set, so that `plan` can refuse a larger batch
    smallest_class: int = 0  # of a task: training images of its rarest class, so that none is emptied by val_fraction

    def load(self) -> Any:
        """Import what the name stands for."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


_DESCENT: Final = {"momentum": 0.0}
_SHARPNESS: Final = {
    "rho": REQUIRED,
    "rho_schedule": "constant",
    "batchnorm_statistics": "both",
    **_DESCENT,
}

TASKS: Final[Mapping[str, Component]] = {
    "digits": Component(
        "trainer.tasks:digits",
        uses={"augmentation": "none", "label_smoothing": 0.0},
        train_size=1437,
        smallest_class=139,
    ),
}
MODELS: Final[Mapping[str, Component]] = {
    "resnet8": Component("trainer.models:resnet8"),
    "resnet20": Component("trainer.models:resnet20"),
    "resnet32": Component("trainer.models:resnet32"),
    "mlp": Component("trainer.models:mlp", options=MLPOptions),
}
OPTIMIZERS: Final[Mapping[str, Component]] = {
    "sgd": Component("trainer.optimizers:SGD", uses=_DESCENT, family="sgd"),
    "usam": Component("trainer.optimizers:SharpnessAware", uses=_SHARPNESS, family="sam"),
    "sam": Component("trainer.optimizers:SharpnessAware", uses=_SHARPNESS, family="sam"),
}
SCHEDULERS: Final[Mapping[str, Component]] = {
    "constant": Component("trainer.schedulers:StepSizes", uses={"lr": REQUIRED}),
    "cosine": Component("trainer.schedulers:StepSizes", uses={"lr": REQUIRED, "lr_min": 0.0}),
    "polyak": Component("trainer.schedulers:StepSizes", uses={"gamma_b": 1.0, "lower_bound": 0.0}),
}
REGISTRY: Final[Mapping[str, Mapping[str, Component]]] = {
    "task": TASKS,
    "model": MODELS,
    "optimizer": OPTIMIZERS,
    "scheduler": SCHEDULERS,
}


def component(kind: str, name: object) -> Component:
    """The registry entry of `name`.

    Raises `ConfigError` with the valid names where there is none.
    """
    known = REGISTRY[kind]
    if not isinstance(name, str) or name not in known:
        raise ConfigError(kind, f"unknown {kind} {name!r}; {expected(name, known)}")
    return known[name]


def expected(word: object, known: Iterable[str]) -> str:
    """`did you mean 'rho'? expected one of ...` for an error message."""
    names = sorted(known)
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}expected one of {', '.join(names)}"
