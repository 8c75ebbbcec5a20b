"""The state of an optimizer that keeps it itself: taken out as plain values, and put back in place.

Besides `state` and `param_groups`, which are its `state_dict`, these are its attributes, as some count their steps in
one, and the optimizers that it has as attributes, as the common SAM classes have. Tensors are put back as they were,
which `load_state_dict` does not promise: it casts them to the dtype of the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from torch import Tensor, nn

from polysweep.trainer.errors import ConfigError

KEPT_APART: Final = ("state", "param_groups", "defaults")


def memory(theirs: Any, parameters: Sequence[nn.Parameter]) -> dict[str, Any]:
    """Its state in plain values and tensors. Raises `ConfigError` for a part of `state` or a group that is neither."""
    index = {id(parameter): n for n, parameter in enumerate(parameters)}
    state = getattr(theirs, "state", {})
    groups = [
        {name: plain(value, f"param_groups.{name}") for name, value in group.items() if name != "params"}
        for group in getattr(theirs, "param_groups", [])
    ]
    return {
        "parameters": {index[id(key)]: plain(value, "state") for key, value in state.items() if id(key) in index},
        "state": {key: plain(value, f"state.{key}") for key, value in state.items() if id(key) not in index},
        "groups": groups,
        "attributes": {name: plain(value, name) for name, value in _attributes(theirs) if is_plain(value)},
        "inner": {name: memory(inner, parameters) for name, inner in _inner(theirs)},
    }


def recall(theirs: Any, content: Mapping[str, Any], parameters: Sequence[nn.Parameter]) -> None:
    """Put back what `memory` took out: groups in place, as several optimizers may share them."""
    if hasattr(theirs, "state"):
        theirs.state.clear()
        theirs.state.update({parameters[n]: value for n, value in content["parameters"].items()})
        theirs.state.update(content["state"])
    for group, values in zip(getattr(theirs, "param_groups", []), content["groups"], strict=True):
        group.update(values)
    for name, value in content["attributes"].items():
        setattr(theirs, name, value)
    for name, inner in _inner(theirs):
        recall(inner, content["inner"][name], parameters)


def groups_of(theirs: Any) -> Iterator[dict[str, Any]]:
    """Its parameter groups, then those of the optimizers that it has as attributes."""
    yield from getattr(theirs, "param_groups", [])
    for _, inner in _inner(theirs):
        yield from groups_of(inner)


def is_plain(value: Any) -> bool:
    """Whether a value is a number, text, None, a tensor that is no parameter, or a list or dict of these."""
    if isinstance(value, Mapping):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or (
        isinstance(value, bool | int | float | str | Tensor) and not isinstance(value, nn.Parameter)
    )


def plain(value: Any, place: str) -> Any:
    """The value without subclasses of numbers and dicts. Raises `ConfigError` for what a checkpoint cannot hold."""
    if isinstance(value, Mapping):
        return {key: plain(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [plain(item, place) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if not is_plain(value):
        raise ConfigError("optimizer", f"its {place} is a {type(value).__name__}, which a checkpoint cannot hold")
    if isinstance(value, Tensor):
        return value.detach()
    kinds = (kind for kind in (bool, int, float, str) if isinstance(value, kind))
    return next((kind(value) for kind in kinds), None)


def _attributes(theirs: Any) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in vars(theirs).items() if name not in KEPT_APART)


def _inner(theirs: Any) -> Iterator[tuple[str, Any]]:
    """Its attributes that are optimizers too."""
    return ((name, value) for name, value in _attributes(theirs) if hasattr(value, "param_groups"))
