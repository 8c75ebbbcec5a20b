"""`wandb://entity/project[/tag]`: where runs are pulled from, and the mapping of names that are not ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from polysweep.trainer.errors import UserError

SCHEME: Final = "wandb://"
_PART: Final = re.compile(r"[^/\s:?#%]+")


@dataclass(frozen=True)
class Address:
    """A W&B project, or its runs with one tag: polysweep tags every run with the names of its sweeps."""

    entity: str
    project: str
    tag: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises `UserError` with the form that is expected."""
        parts = text.removeprefix(SCHEME).split("/")
        if not text.startswith(SCHEME) or len(parts) not in (2, 3) or not all(map(_PART.fullmatch, parts)):
            raise UserError(
                f"{text!r} is not a W&B address; expected wandb://ENTITY/PROJECT or wandb://ENTITY/PROJECT/TAG"
            )
        return cls(*parts)

    @property
    def name(self) -> str:
        """What titles call it."""
        return self.tag or self.project

    def __str__(self) -> str:
        return SCHEME + "/".join(part for part in (self.entity, self.project, self.tag) if part)


def parse_filter(text: str | None) -> dict[str, Any]:
    """The filter of `--filter`: W&B's own, a JSON object. Raises `UserError` if it is none."""
    if text is None:
        return {}
    try:
        conditions = json.loads(text)
    except ValueError as error:
        raise UserError(f"--filter: not JSON ({error}): {text!r}; for example '{{\"config.rho\": 0.1}}'") from None
    if not isinstance(conditions, dict):
        raise UserError(f'--filter: {text!r} is not a JSON object; for example \'{{"state": "finished"}}\'')
    return conditions


def parse_mapping(pairs: Sequence[str]) -> dict[str, str]:
    """By our name theirs, from `OURS=THEIRS` of `--map`.

    Raises `UserError` for another form and for a name given twice.
    """
    mapping: dict[str, str] = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise UserError(f"--map: {pair!r}; expected OURS=THEIRS, such as rho=optimizer.radius or seed=random_seed")
        if ours in mapping or theirs in mapping.values():
            raise UserError(f"--map: {pair!r}: {ours if ours in mapping else theirs} is mapped twice")
        mapping[ours] = theirs
    return mapping


def flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested maps as `outer.inner`."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
