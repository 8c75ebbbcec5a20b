"""Which fields a config's components read: refusing the others, filling in defaults, checking options.

`parts` has the component of each kind, `values` what the user gave, by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from polysweep.trainer.components.component import REQUIRED, Component
from polysweep.trainer.components.registry import CONDITIONAL, REGISTRY
from polysweep.trainer.errors import ConfigError, expected
from polysweep.trainer.text import brief


def fields_read(parts: Mapping[str, Component]) -> dict[str, Any]:
    """The conditional fields that the components read, with their default or `REQUIRED`."""
    fixed = parts["scheduler"].fixes
    return {key: default for part in parts.values() for key, default in part.uses.items() if key not in fixed}


def require_together(parts: Mapping[str, Component], values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if two of the components are not made for each other."""
    for kind, other, valid in (
        ("task", "model", parts["task"].models),
        ("optimizer", "scheduler", parts["optimizer"].schedulers),
        ("scheduler", "optimizer", parts["scheduler"].optimizers),
    ):
        if valid and values[other] not in valid:
            derived = ": its step size is derived for a step along the gradient" if parts[other].along_gradient else ""
            raise ConfigError(
                other, f"{values[other]!r} is not for {named(kind, values)}{derived}; {expected('', valid)}"
            )
    if parts["scheduler"].only_if_named and values["scheduler"] not in parts["optimizer"].schedulers:
        problem = f"{values['scheduler']!r} is for wrapped optimizers without a learning rate"
        raise ConfigError("scheduler", f"{problem}; {named('optimizer', values)} needs another one")
    needs = parts["scheduler"].needs
    if needs and not parts["task"].problem:
        convex = [name for name, part in REGISTRY["task"].items() if part.problem]
        raise ConfigError(
            "scheduler",
            f"{values['scheduler']!r} requires {', '.join(needs)}, which task {values['task']!r} does not define; "
            f"tasks that do: {', '.join(convex)}",
        )


def refuse_unread(parts: Mapping[str, Component], values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a field that the scheduler fixes itself, or that no component reads."""
    for key in values.keys() & set(parts["scheduler"].fixes):
        raise ConfigError(key, f"scheduler {values['scheduler']!r} fixes it itself; leave it out")
    if values.get("weight_decay") and not parts["optimizer"].reads_weight_decay:
        raise ConfigError("weight_decay", f"{named('optimizer', values)} does not use it; leave it out")
    for key in CONDITIONAL & values.keys() - fields_read(parts).keys():
        readers = _readers(key)
        chosen = ", ".join(named(kind, values) for kind in readers)
        names = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in readers.items())
        raise ConfigError(key, f"{chosen} does not use it (used by {names}); leave it out")


def with_defaults(parts: Mapping[str, Component], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the default of every field that is read and missing. Raises `ConfigError` if it has none."""
    complete = dict(values)
    for key, default in fields_read(parts).items():
        if key in values:
            continue
        if default is REQUIRED:
            raise ConfigError(key, f"missing; {_owner(key, parts, values)} needs it")
        complete[key] = default
    return complete


def options_of(kind: str, part: Component, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a component, checked, with their defaults. Raises `ConfigError`."""
    options = values.get(f"{kind}_options", {})
    if not isinstance(options, Mapping):
        raise ConfigError(f"{kind}_options", f"must be a mapping, not {brief(options)}")
    for key in options:
        if key not in part.options.model_fields:
            names = ", ".join(part.options.model_fields) or "none"
            on = [base for base, other in part.bases.items() if key in other.options.model_fields]
            names += f"; of base {', '.join(on)}: {', '.join(part.bases[on[0]].options.model_fields)}" if on else ""
            raise ConfigError(
                f"{kind}_options", f"{named(kind, values)} has no option {brief(key)}; its options: {names}"
            )
    try:
        return part.options(**options).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([f"{kind}_options", *(str(part) for part in first["loc"])])
        if first["type"] == "missing":
            raise ConfigError(place, f"missing; {named(kind, values)} needs it") from None
        cause = first.get("ctx", {}).get("error")
        got = f" (got {brief(first['input'])})" if first["loc"] else ""
        message = first["msg"].replace("tuple", "list").replace("Tuple", "List")  # a spec has lists
        raise ConfigError(place, f"{cause or message}{got}") from None


def named(kind: str, values: Mapping[str, Any]) -> str:
    """A component for a message: `optimizer 'sam' with base 'adamw'`."""
    part = REGISTRY[kind].get(str(values[kind]))
    base = values.get("base") if part and part.bases else None
    return f"{kind} {values[kind]!r}" + (f" with base {base!r}" if base else "")


def _readers(key: str) -> dict[str, list[str]]:
    """By kind, the names of the components that read `key`."""
    readers = {kind: [name for name, part in names.items() if key in part.uses] for kind, names in REGISTRY.items()}
    return {kind: names for kind, names in readers.items() if names}


def _owner(key: str, parts: Mapping[str, Component], values: Mapping[str, Any]) -> str:
    """The component that reads `key`, for a message."""
    return next(named(kind, values) for kind, part in parts.items() if key in part.uses)
