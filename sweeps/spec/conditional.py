"""Parameters that only some of the listed components read, as variants: `optimizer: [sgd, sam]` beside `rho`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.parameter import Parameter
from polysweep.sweeps.spec.proposals import USUAL, in_our_case
from polysweep.trainer.components.component import Component
from polysweep.trainer.components.fields import fields_read, require_together
from polysweep.trainer.components.plugins import component
from polysweep.trainer.components.registry import CONDITIONAL
from polysweep.trainer.errors import ConfigError

Choice = tuple[Any, ...]
"""One value of each kind of component that varies."""


def as_variants(spec: SpecFields) -> list[dict[str, Any]]:
    """The spec's variants, split so that each has only parameters that all of its components read.

    By name the entries of the file; those of `parameters` that vary with a variant, or that a part of the variants does
    not read, are in the variants. Empty if there is nothing to split.
    """
    split = [_split(space) for space in spec.space]
    if not any(split):
        return []
    moved = {name for blocks in split for block in blocks for name in block} & spec.parameters.keys()
    variants = []
    for variant, space, blocks in zip(spec.variants, spec.space, split, strict=True):
        unread = {name for block in blocks for name in block}
        shared = {name: _entry(space[name]) for name in space if name in {*variant, *moved} and name not in unread}
        variants += [{**block, **shared} for block in blocks or [{}]]
    return variants


def _split(space: Mapping[str, Parameter]) -> list[dict[str, Any]]:
    """The choices of components that vary, with the parameters that only some of them read; empty if all read all."""
    names = {
        kind: list(dict.fromkeys(in_our_case(kind, name) for name in space[kind].grid or ()))
        for kind in (*USUAL, "base")
        if kind in space
    }
    varying = [kind for kind in names if len(names[kind]) > 1]
    if not varying or not all(_exists(kind, name) for kind in varying if kind != "base" for name in names[kind]):
        return []
    by_reads: dict[frozenset[str], list[Choice]] = {}
    are_all_valid = True
    for choice in itertools.product(*[names[kind] for kind in varying]):
        shared = {kind: listed[0] for kind, listed in names.items() if listed}
        parts = _parts({**USUAL, **shared, **dict(zip(varying, choice, strict=True))})
        if parts is None:
            are_all_valid = False
            continue
        read = frozenset(name for name in space if _reads(parts, name))
        by_reads.setdefault(read, []).append(choice)
    if not by_reads or (len(by_reads) == 1 and are_all_valid):
        return []
    read_by_all, read_by_any = frozenset.intersection(*by_reads), frozenset.union(*by_reads)
    conditional = [name for name in space if name in read_by_any - read_by_all and name not in varying]
    blocks = []
    for read, choices in by_reads.items():
        for block in _products(choices):
            kinds = {
                kind: _choice(values)
                for kind, values in zip(varying, block, strict=True)
                if kind != "base" or kind in read
            }
            blocks.append({**kinds, **{name: _entry(space[name]) for name in conditional if name in read}})
    same = [kind for kind in varying if all(block.get(kind) == blocks[0].get(kind) for block in blocks)]
    return [{name: entry for name, entry in block.items() if name not in same} for block in blocks]


def _parts(names: Mapping[str, Any]) -> dict[str, Component] | None:
    """The components of these names; None if there is no such, or if they are not made for each other."""
    try:
        parts = {kind: component(kind, names[kind]) for kind in USUAL}
        parts["optimizer"] = parts["optimizer"].on(names.get("base"))
        require_together(parts, names)
    except ConfigError:
        return None
    return parts


def _exists(kind: str, name: object) -> bool:
    try:
        component(kind, name)
    except ConfigError:
        return False
    return True


def _reads(parts: Mapping[str, Component], name: str) -> bool:
    """Whether components read a parameter."""
    field, dot, option = name.partition(".")
    if dot:
        return option in parts[field.removesuffix("_options")].options.model_fields
    return field not in CONDITIONAL or field in fields_read(parts)


def _products(choices: Sequence[Choice]) -> Iterator[list[list[Any]]]:
    """Choices as few grids: by kind its values."""
    by_kind = [list(dict.fromkeys(values)) for values in zip(*choices, strict=True)]
    if len(choices) == len(list(itertools.product(*by_kind))):
        yield by_kind
        return
    for value in by_kind[0]:
        rest = [choice[1:] for choice in choices if choice[0] == value]
        yield from ([[value], *block] for block in _products(rest))


def _choice(values: Sequence[Any]) -> dict[str, Any]:
    return {"value": values[0]} if len(values) == 1 else {"values": list(values)}


def _entry(parameter: Parameter) -> dict[str, Any]:
    """An entry as the file has it."""
    entry: dict[str, Any] = parameter.model_dump(exclude_unset=True)
    return entry
