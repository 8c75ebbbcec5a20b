"""Somebody else's optimizer, unchanged: which fields and options its constructor takes, and how its step is called.

Any subclass of torch.optim.Optimizer can be named by its import path; `wrap` says what its signature does not. Nothing
is read but signatures; `trainer.optimizers.wrapped` trains with it.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, create_model

from polysweep.trainer.components.component import AHEAD, REQUIRED, Component
from polysweep.trainer.components.options import Flag, Options, number
from polysweep.trainer.components.registry import OWN_STEP_SIZE
from polysweep.trainer.errors import ConfigError, expected

Call = Literal["step", "closure", "loss", "two steps"]
"""How a step is taken: `step()` after a backward pass; `step(closure)`; `step(loss=...)` after a backward pass; or
`first_step(zero_grad=True)` and `second_step(zero_grad=True)`, each after a backward pass."""

OPTIONAL_FIELDS: Final[tuple[str, ...]] = ("rho", "momentum", "gamma_b", "lower_bound")
"""Config fields that a constructor may take besides `weight_decay` and, with a scheduler, `lr`."""
FIELDS: Final[tuple[str, ...]] = (*OPTIONAL_FIELDS, "weight_decay", "lr")
NEUTRAL: Final = {"momentum": 0.0, "lower_bound": 0.0}
"""Defaults of fields that a constructor takes without naming them."""


def whole_as_int(value: float) -> float:
    """One spelling for a number that may be whole."""
    return int(value) if float(value).is_integer() else value


OBJECTS: Final = ("model", "params", "optimizer", "base_optimizer", "optimizer_cls", "optimizer_class")
"""Names of arguments that are no values of a config, where they are not the parameters, which come first."""

Scalar = bool | int | float | str | None
TYPES: Final[Mapping[type, Any]] = {
    bool: Flag,
    int: Annotated[int | float, BeforeValidator(number), AfterValidator(whole_as_int)],
    float: Annotated[float, BeforeValidator(number)],
    str: str,
    tuple: tuple[Scalar, ...],
    list: tuple[Scalar, ...],
    type(None): Scalar,
}
"""By the type of an argument's default, the type of the option."""


@dataclass(frozen=True)
class Wrapping:
    """A class, its fixed arguments, the arguments that take a config's fields, by field, and how its step is called."""

    optimizer: Any
    fixed: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    asked_call: Call | None = None
    version: int = 1

    @property
    def name(self) -> str:
        """Of the class."""
        return str(getattr(self.optimizer, "__name__", self.optimizer))

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments after the parameters, by name with their default or `REQUIRED`; no fixed ones.

        A constructor with `**kwargs` takes also those of the class that is its fixed argument, as `base_optimizer`.
        """
        named, passes_on = _arguments(self.optimizer)
        if passes_on:
            for value in self.fixed.values():
                if inspect.isclass(value):
                    named = {**_arguments(value)[0], **named}
            named |= {argument: NEUTRAL.get(name, REQUIRED) for name, argument in self.fields.items()
                      if argument not in named}  # fmt: skip
        return {name: default for name, default in named.items() if name not in self.fixed}

    @cached_property
    def by_field(self) -> dict[str, str]:
        """By config field, the argument that takes it."""
        same = {name: name for name in FIELDS if name in self.arguments and name not in self.fields.values()}
        return {**same, **self.fields}

    @cached_property
    def options(self) -> type[Options]:
        """The remaining arguments that a config can give a value for."""
        taken = self.by_field.values()
        entries: dict[str, Any] = {
            name: (Scalar, ...) if default is REQUIRED else (TYPES[type(default)], default)
            for name, default in self.arguments.items()
            if name not in taken and not name.startswith("_") and _is_option(default)
        }
        return create_model(f"{self.name}Options", __base__=Options, **entries)

    @cached_property
    def call(self) -> Call:
        """How its step is taken. Raises `ConfigError` if neither its signature nor `wrap` says it."""
        if self.asked_call:
            return self.asked_call
        if hasattr(self.optimizer, "first_step") and hasattr(self.optimizer, "second_step"):
            return "two steps"
        step = getattr(self.optimizer, "step", None)
        if step is None:
            raise ConfigError("optimizer", f"{self.name} has no step()")
        needed = self.step_needs
        if "loss" in inspect.signature(step).parameters:
            return "loss"
        return "closure" if "closure" in needed else "step"

    @cached_property
    def step_needs(self) -> tuple[str, ...]:
        """The arguments without a default of its step. Raises `ConfigError` for one that is not known here."""
        parameters = list(inspect.signature(self.optimizer.step).parameters.values())[1:]
        needed = tuple(one.name for one in parameters if one.default is one.empty and one.kind not in _VARIADIC)
        if unknown := [name for name in needed if name not in ("closure", "loss")]:
            raise ConfigError("optimizer", f"{self.name}.step() needs {', '.join(unknown)}; closure and loss are known")
        return needed

    def component(self, target: str, family: str) -> Component:
        """What a config has to know of it. Raises `ConfigError` if the class cannot be used."""
        for name, argument in self.fields.items():
            if name not in FIELDS:
                raise ConfigError("optimizer", f"wrap({self.name}, fields=...): {expected(name, FIELDS)}")
            if argument not in self.arguments:
                raise ConfigError(
                    "optimizer", f"{self.name} takes no {argument!r}; {expected(argument, self.arguments)}"
                )
        first = next(iter(inspect.signature(self.optimizer).parameters))
        if first in OBJECTS and first != "params":
            raise ConfigError("optimizer", f"{self.name} takes {first!r} first; only what takes parameters is wrapped")
        if objects := [name for name, default in self.arguments.items() if default is REQUIRED and name in OBJECTS]:
            arguments = ", ".join(f"{name}=..." for name in objects)
            raise ConfigError(
                "optimizer", f"{self.name} needs what no config can hold: polysweep.wrap({self.name}, {arguments})"
            )
        if callable(getattr(self.optimizer, "train", None)) and callable(getattr(self.optimizer, "eval", None)):
            problem = (
                f"{self.name} has train() and eval(): it evaluates other weights than it trains, which is not known"
            )
            raise ConfigError("optimizer", problem)
        assert self.call in get_args(Call)
        uses = {name: self.arguments[self.by_field[name]] for name in OPTIONAL_FIELDS if name in self.by_field}
        return Component(
            target,
            uses=uses,
            options=self.options,
            family=family,
            version=self.version,
            schedulers=AHEAD if "lr" in self.by_field else (OWN_STEP_SIZE,),
            adapter="polysweep.trainer.optimizers.wrapped:adapted",
            reads_weight_decay="weight_decay" in self.by_field,
        )


def wrap(
    optimizer: Callable[..., Any],
    *,
    fields: Sequence[str] | Mapping[str, str] = (),
    call: Call | None = None,
    version: int = 1,
    **fixed: Any,
) -> Wrapping:
    """Make an optimizer of polysweep of a class in the style of torch.optim, as it is.

    `fixed` are arguments of its constructor besides the parameters. `fields` are config fields (`rho`, `momentum`,
    `gamma_b`, `lower_bound`, `weight_decay`, `lr`) that it takes without naming them, or by field the argument that
    takes it; arguments of these names are taken anyway, and all others are options. `call` is `step`, `closure`,
    `loss` or `two steps`, if it is not what the signature of its step says. `version` as of `declare`.

    Example:

        SAM = wrap(their_repository.SAM, base_optimizer=torch.optim.SGD)
    """
    if call is not None and call not in get_args(Call):
        raise ConfigError(f"wrap(call={call!r})", expected(call, get_args(Call)))
    by_name = fields if isinstance(fields, Mapping) else {name: name for name in fields}
    return Wrapping(optimizer, fixed, dict(by_name), call, version)


def wrapping_of(part: Any) -> Wrapping | None:
    """What a user's part is wrapped as: what `wrap` returned, or a subclass of torch.optim.Optimizer; else None."""
    if isinstance(part, Wrapping):
        return part
    torch = sys.modules.get("torch")  # without torch, it is no subclass of torch's
    is_theirs = torch is not None and inspect.isclass(part) and issubclass(part, torch.optim.Optimizer)
    return Wrapping(part, version=getattr(getattr(part, "polysweep", None), "version", 1)) if is_theirs else None


def _is_option(default: Any) -> bool:
    """Whether a config can give a value for an argument with this default; infinity cannot be written in one."""
    if isinstance(default, float):
        return math.isfinite(default)
    return default is REQUIRED or type(default) in TYPES


_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _arguments(optimizer: Any) -> tuple[dict[str, Any], bool]:
    """A constructor's arguments after the parameters with their defaults, and whether it takes any others."""
    parameters = list(inspect.signature(optimizer).parameters.values())
    named = {
        one.name: REQUIRED if one.default is one.empty else one.default
        for one in parameters[1:]
        if one.kind not in _VARIADIC
    }
    return named, any(one.kind is one.VAR_KEYWORD for one in parameters)
