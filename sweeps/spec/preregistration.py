"""Claims that a spec makes before its sweep is run: A beats B on a metric by at least so much, in these cells."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from polysweep.trainer.history import is_accuracy
from polysweep.trainer.text import brief

POINTS: Final = "points"
"""The unit of a difference of accuracies: percentage points."""


def one_value(value: object) -> object:
    """A field's value. Raises `ValueError` for a list or a mapping."""
    if not isinstance(value, str | bool | int | float):
        raise ValueError("a single value")
    return value


Value = Annotated[Any, AfterValidator(one_value)]
Values = Annotated[dict[str, Value], Field(min_length=1)]
_AMOUNT_SCHEMA: Final = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": rf"^[0-9.eE+-]+ *{POINTS}$"}]
}


class Amount(NamedTuple):
    """How much better, in the unit of the metric: `0.2 points` of an accuracy are 0.002."""

    value: float
    in_points: bool

    def __str__(self) -> str:
        return f"{100 * self.value:g} {POINTS}" if self.in_points else f"{self.value:g}"


def read_amount(value: object) -> Amount:
    """A number, or a text such as `0.2 points`. Raises `ValueError`."""
    text = value.strip() if isinstance(value, str) else value
    in_points = isinstance(text, str) and text.endswith(POINTS)
    try:
        number = float(str(text).removesuffix(POINTS)) if not isinstance(text, bool) else math.nan
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"a number >= 0, or such as '0.2 {POINTS}'")
    return Amount(number / 100 if in_points else number, in_points)


class Claim(BaseModel):
    """`better` beats `than` on `metric` by at least `by`, in every cell of `over`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    better: Values  # fields of a cell and their values: {scheduler: polyak}
    than: Values  # the same fields: {scheduler: constant}
    metric: str = ""  # by default the sweep's
    by: Annotated[
        Amount, BeforeValidator(read_amount), WithJsonSchema(_AMOUNT_SCHEMA), Field(validate_default=True)
    ] = 0  # type: ignore[assignment]
    over: dict[str, Annotated[list[Value], Field(min_length=1)]] = {}  # by default all cells

    def __str__(self) -> str:
        """`scheduler=polyak beats scheduler=constant by at least 0.2 points on test/top1 (rho in 0.1, 0.4)`."""
        better, than = (" ".join(f"{k}={v}" for k, v in side.items()) for side in (self.better, self.than))
        amount = f" by at least {self.by}" if self.by.value else ""
        cells = "; ".join(f"{name} in {', '.join(map(str, values))}" for name, values in self.over.items())
        return f"{better} beats {than}{amount} on {self.metric}" + (f" ({cells})" if cells else "")

    def pairs(self, cells: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
        """The cells that it compares, by their places: one of `better` with each of `than` that agrees with it.

        They agree if every field that both have, and the claim does not name, is the same.
        """
        for first, cell in enumerate(cells):
            if not self._has(cell, self.better):
                continue
            for second, other in enumerate(cells):
                shared = (cell.keys() & other.keys()) - self.better.keys()
                if self._has(other, self.than) and all(cell[name] == other[name] for name in shared):
                    yield first, second

    def _has(self, cell: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Whether a cell has these values, and is one of `over` as far as its fields apply."""
        is_over = all(cell[name] in some for name, some in self.over.items() if name in cell)
        return is_over and all(cell.get(name) == value for name, value in values.items())


@dataclass(frozen=True)
class Preregistration:
    """The claims of a sweep as its first launch has frozen them."""

    claims: tuple[Claim, ...]
    at: str = ""  # of that launch: 2026-11-29 20:15 UTC; empty for a spec that was not launched
    ended: int = 0  # trials that had ended before, in other sweeps: their results may have been seen

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of the claims' canonical JSON."""
        return hashlib.sha256(json.dumps(self.canonical(), sort_keys=True).encode()).hexdigest()[:16]

    def canonical(self) -> list[dict[str, Any]]:
        """As the Store keeps them."""
        return [{**claim.model_dump(), "by": str(claim.by)} for claim in self.claims]


def unit_problem(claim: Claim) -> str:
    """What is wrong with the unit of `by`; empty if nothing is."""
    if is_accuracy(claim.metric) and claim.by.value and not claim.by.in_points:
        value = claim.by.value
        return (
            f"{value:g} of an accuracy needs a unit: '{value:g} {POINTS}' are percentage points, "
            f"'{100 * value:g} {POINTS}' the fraction {value:g}"
        )
    if claim.by.in_points and not is_accuracy(claim.metric):
        return f"{brief(str(claim.by))}: {claim.metric} is no accuracy and has no {POINTS}; give a number"
    return ""
