"""Claims that a spec makes before its sweep is run: A beats B on a metric by at least so much, in these cells."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from polysweep.trainer.history import is_accuracy
from polysweep.trainer.text import brief

POINTS: Final = "points"
"""The unit of a difference of accuracies: percentage points."""
_AMOUNT: Final = re.compile(rf"\s*([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*({POINTS})?\s*")
AMOUNT_SCHEMA: Final = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": rf"^[0-9.eE+-]+ *{POINTS}$"}]
}


class Amount(NamedTuple):
    """How much better, as written: `0.2 points` of an accuracy are 0.002."""

    number: float
    in_points: bool

    @property
    def value(self) -> float:
        """In the unit of the metric."""
        return self.number / 100 if self.in_points else self.number

    def __str__(self) -> str:
        text = repr(self.number).removesuffix(".0")
        return f"{text} {POINTS}" if self.in_points else text


def read_amount(value: object) -> Amount:
    """A number, or a text such as `0.2 points`. Raises `ValueError`."""
    match = _AMOUNT.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    number = float((match[1] + (match[2] or "")) if match and not isinstance(value, bool) else "nan")
    in_points = bool(match and match[3])
    if not math.isfinite(number) or (in_points and number > 100):
        raise ValueError(f"a number >= 0, or such as '0.2 {POINTS}', at most 100 of them")
    return Amount(number, in_points and number > 0)


def one_value(value: object) -> object:
    """A field's value. Raises `ValueError` for a list or a mapping."""
    if not isinstance(value, str | bool | int | float):
        raise ValueError("a single value")
    return value


def listed(value: object) -> object:
    """A list of one where a single value is given."""
    return [value] if isinstance(value, str | bool | int | float) else value


def is_same(one: object, other: object) -> bool:
    """Whether two values of a field are the same: `1` and `1.0` are, `1` and `true` are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


Value = Annotated[Any, AfterValidator(one_value)]
Values = Annotated[dict[str, Value], Field(min_length=1)]


class Claim(BaseModel):
    """`better` beats `than` on `metric` by at least `by`, in every cell of `over`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    better: Values  # fields of a cell and their values: {scheduler: polyak}
    than: Values  # the same fields: {scheduler: constant}
    metric: str = ""  # by default the sweep's
    by: Annotated[Amount, BeforeValidator(read_amount), WithJsonSchema(AMOUNT_SCHEMA), Field(validate_default=True)] = 0  # type: ignore[assignment]
    over: dict[str, Annotated[list[Value], BeforeValidator(listed), Field(min_length=1)]] = {}  # by default all cells

    def __str__(self) -> str:
        """`scheduler=polyak beats scheduler=constant by at least 0.2 points on test/top1 (rho in 0.1, 0.4)`."""
        better, than = (" ".join(f"{k}={v}" for k, v in side.items()) for side in (self.better, self.than))
        amount = f" by at least {self.by}" if self.by.number else ""
        cells = "; ".join(f"{name} in {', '.join(map(str, values))}" for name, values in self.over.items())
        return f"{better} beats {than}{amount} on {self.metric}" + (f" ({cells})" if cells else "")

    def pairs(self, cells: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
        """The cells that it compares, by their places: one of `better` with each of `than` that agrees with it.

        They agree if every field that both have, and the claim does not name, is the same.
        """
        others = [(place, cell) for place, cell in enumerate(cells) if self._has(cell, self.than)]
        for place, cell in enumerate(cells):
            if self._has(cell, self.better):
                for other_place, other in others:
                    shared = (cell.keys() & other.keys()) - self.better.keys()
                    if all(cell[name] == other[name] for name in shared):
                        yield place, other_place

    def _has(self, cell: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Whether a cell has these values, and is one of `over` as far as its fields apply."""
        is_over = all(any(is_same(cell[name], one) for one in some) for name, some in self.over.items() if name in cell)
        return is_over and all(name in cell and is_same(cell[name], value) for name, value in values.items())


@dataclass(frozen=True)
class Preregistration:
    """The claims of a sweep, and what their answers depend on, as its first launch has frozen them."""

    claims: tuple[Claim, ...]
    design: Mapping[str, str] = field(default_factory=dict)  # by part: metric, tuned, seeds, trials, ...
    at: str = ""  # of that launch: 2026-11-29 20:15 UTC; empty for a spec
    begun: int = 0  # trials that had begun before, for another sweep: their results may have been seen

    @property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON of all of it."""
        return hashlib.sha256(json.dumps(self.canonical(), sort_keys=True).encode()).hexdigest()[:16]

    def canonical(self) -> dict[str, Any]:
        """As the Store keeps it."""
        claims = [{**claim.model_dump(), "by": str(claim.by)} for claim in self.claims]
        return {"at": self.at, "begun": self.begun, "design": dict(self.design), "claims": claims}

    def changes_to(self, other: Preregistration) -> list[str]:
        """What differs: `claims`, `seeds: 0, 1, 2 -> 0, 1`."""
        changes = ["claims"] if self.canonical()["claims"] != other.canonical()["claims"] else []
        parts = dict.fromkeys([*self.design, *other.design])
        return changes + [
            f"{part}: {self.design.get(part, 'nothing')} -> {other.design.get(part, 'nothing')}"
            for part in parts
            if self.design.get(part) != other.design.get(part)
        ]


def unit_problem(amount: Amount, metric: str) -> str:
    """What is wrong with the unit of a difference of a metric; empty if nothing is."""
    number = amount.number
    if is_accuracy(metric) and number and not amount.in_points:
        return (
            f"{number:g} of an accuracy needs a unit: '{number:g} {POINTS}' are percentage points, "
            f"'{100 * number:g} {POINTS}' the fraction {number:g}"
        )
    if amount.in_points and not is_accuracy(metric):
        return f"{brief(str(amount))}: {metric} is no accuracy and has no {POINTS}; give a number"
    return ""
