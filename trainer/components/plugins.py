"""Components by name: the built-in ones, and the user's own from an import path or an entry point.

    scheduler: my_lab.rules:DecSPS         an import path, `module:attribute`
    scheduler: halving                     an entry point of the group `polysweep.schedulers`

A user's part says what it needs with `polysweep.declare`; `docs/extending.md` has an example of each kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from polysweep.trainer.components.component import OF_CLASSES, Component, load
from polysweep.trainer.components.registry import CONDITIONAL, REGISTRY, Declaration
from polysweep.trainer.components.sources import source_hash
from polysweep.trainer.components.wrapping import wrapping_of
from polysweep.trainer.errors import ConfigError, expected
from polysweep.trainer.history import CALIBRATION_COLUMNS, CLASSIFICATION_METRICS, PROBLEM_METRICS
from polysweep.trainer.text import brief

METHODS: Final = {
    "task": (),
    "model": (),
    "optimizer": ("init", "update"),
    "scheduler": ("init", "start_epoch", "gamma"),
}
"""What a user's class of each kind must have. A task and a model are callables."""

FORMER_PACKAGES: Final = ("trainer", "sweeps", "analysis")
"""Top-level names of versions before the one name polysweep."""
RENAMED: Final = {"propose": "update", "initial": "init"}
"""By the name that a method of a user's class had, its name now."""

_PATH: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def component(kind: str, name: object) -> Component:
    """What `name` stands for among the components of `kind`.

    Raises `ConfigError` with the valid names if there is none, or with what is wrong with a user's own part.
    """
    built_in = REGISTRY[kind]
    if isinstance(name, str):
        if name in built_in:
            return built_in[name]
        if ":" in name:
            return _own(kind, name, name)
        target = _entry_points(kind).get(name)
        if target is not None:
            return _own(kind, name, target)
    names = expected(name, [*built_in, *_entry_points(kind)])
    raise ConfigError(kind, f"unknown {kind} {brief(name)}; {names}, or an import path such as my_lab.rules:Name")


def metrics_of(task: Component) -> tuple[str, ...]:
    """The history columns of a task that can select."""
    if task.problem:
        return PROBLEM_METRICS
    of_classes = (*CLASSIFICATION_METRICS, *CALIBRATION_COLUMNS)
    if task.metrics is None:
        return of_classes
    own = [name for name in task.metrics if name not in OF_CLASSES]
    return (
        *(name for name in of_classes if name.rpartition("/")[2] in ("loss", *task.metrics)),
        *(f"{split}/{name}" for split in ("val", "test") for name in own),
    )


def direction_of(task: Component, metric: str) -> str | None:
    """`maximize` or `minimize`, by what the task says of a history column; None if it says nothing."""
    name = metric.rpartition("/")[2]
    return "minimize" if task.problem or name == "loss" else task.directions.get(name)


def is_own(kind: str, name: str) -> bool:
    """Whether the component is a user's."""
    return name not in REGISTRY[kind]


def own_sources(parts: Mapping[str, Any]) -> dict[str, str]:
    """By kind, the hash of the source of those of a config's parts that are the user's own and have one."""
    components = {kind: component(kind, parts[kind]) for kind in METHODS if is_own(kind, parts[kind])}
    return {kind: one.source for kind, one in components.items() if one.source}


def own_modules(names: Iterable[str]) -> list[Path]:
    """Where the modules of import paths lie that are not of an installed package: what has to travel to a worker."""
    paths = {}
    for name in sorted(names):
        top = name.partition(":")[0].partition(".")[0]
        spec = find_spec(top)
        origin = None if spec is None else spec.origin
        if origin is not None and "site-packages" not in origin:
            paths[top] = Path(origin).parent if Path(origin).name == "__init__.py" else Path(origin)
    return list(paths.values())


@lru_cache(maxsize=8)
def _entry_points(kind: str) -> dict[str, str]:
    return {point.name: point.value for point in metadata.entry_points(group=f"polysweep.{kind}s")}


@lru_cache(maxsize=256)
def _own(kind: str, name: str, target: str) -> Component:
    """The component that a user's own part declares.

    Raises `ConfigError` if it cannot be imported or lacks something.
    """
    if not _PATH.fullmatch(target):
        raise ConfigError(
            kind, f"{brief(target)} is not an import path; expected module:attribute, as in my_lab.rules:Name"
        )
    module, _, attribute = target.partition(":")
    try:
        part: Any = load(target)
    except AttributeError as error:
        raise ConfigError(kind, f"{name!r}: {module} has no {attribute} ({error})") from None
    except (Exception, SystemExit) as error:  # whatever a user's module raises on import
        if isinstance(error, ImportError) and str(error.name).partition(".")[0] in FORMER_PACKAGES:
            raise ConfigError(
                kind, f"{name!r}: {module} imports {error.name!r}, which has a new name: `from polysweep import ...`"
            ) from None
        raise ConfigError(kind, f"{name!r}: cannot import {module}: {type(error).__name__}: {error}") from None
    if kind == "optimizer" and (wrapping := wrapping_of(part)):
        source = "" if module.startswith("torch.") else source_hash(module)  # all of torch would take ten seconds
        return replace(wrapping.component(target, name), source=source)
    if not callable(part):
        raise ConfigError(kind, f"{name!r} is a {type(part).__name__}; a {kind} is a class or a function")
    _require_methods(kind, name, part)
    declared = getattr(part, "polysweep", Declaration())
    if not isinstance(declared, Declaration):
        raise ConfigError(kind, f"{name!r} has an attribute polysweep that is not from polysweep.declare")
    for field in declared.uses or {}:
        if field not in CONDITIONAL:
            raise ConfigError(kind, f"{name!r} declares the use of {field!r}; {expected(field, CONDITIONAL)}")
    fields = {**dict(declared), "uses": declared.uses or {}}
    prepare = f"{target}.prepare" if callable(getattr(part, "prepare", None)) else ""
    return Component(target, family=name, prepare=prepare, source=source_hash(module), **fields)


def _require_methods(kind: str, name: str, part: Any) -> None:
    """Raise `ConfigError` for a class that has an old name of a method, or lacks one."""
    for old, new in RENAMED.items():
        if new in METHODS[kind] and callable(getattr(part, old, None)):
            raise ConfigError(kind, f"{name!r} defines {old}(), which is now called {new}(): docs/extending.md")
    unwritten = getattr(part, "__abstractmethods__", ())
    lacking = [m for m in METHODS[kind] if m in unwritten or not callable(getattr(part, m, None))]
    if lacking:
        has = ", ".join(f"{method}()" for method in METHODS[kind])
        raise ConfigError(
            kind,
            f"{name!r} lacks {', '.join(f'{m}()' for m in lacking)}; every {kind} has {has}: docs/extending.md",
        )
