"""What a probe measures, and the columns that it gives. Imports no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from polysweep.trainer.components.corruptions import ALL, Corruption, parse
from polysweep.trainer.components.options import Count, Options, increasing, number
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import CORRUPTIONS

Radius = Annotated[float, BeforeValidator(number), Field(gt=0, le=1e6)]
Radii = Annotated[tuple[Radius, ...], Field(min_length=1, max_length=100), AfterValidator(increasing)]
Few = Annotated[Count, Field(le=1000)]


PROBE_NUMERICS: Final = 1
"""Raised if what a probe measures changes, so that old and new numbers never mix."""


class Measurement(Options):
    """What is measured in one go; `key` names it in the Store, so that other settings never mix with these."""

    kind: ClassVar[str]
    precision: Literal["float32", "float64"] = "float32"

    @property
    def key(self) -> str:
        """The kind, and 12 hex digits of SHA-256 over `PROBE_NUMERICS` and what the numbers depend on."""
        hashed = {"numerics": PROBE_NUMERICS, **self.model_dump(mode="json", exclude={"corruptions"})}
        return f"{self.kind}-{hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:12]}"

    def is_in(self, columns: Collection[str]) -> bool:
        """Whether a measurement with these columns has all that is asked for."""
        return set(self.columns) <= set(columns)

    def beside(self, kept: Sequence[Measurement]) -> Measurement:  # noqa: ARG002
        """What is to be shown, if a sweep has been measured with `kept` before; here this alone."""
        return self

    @property
    def columns(self) -> list[str]:
        """The names of what it measures."""
        raise NotImplementedError

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        """From a user's options; None is the default. Raises `UserError` that names the option."""
        try:
            return cls(**{name: value for name, value in values.items() if value is not None})
        except ValidationError as error:
            first = error.errors()[0]
            message = str(first.get("ctx", {}).get("error") or first["msg"]).replace("Tuple", "List")
            if not first["loc"]:
                raise UserError(message) from None
            option = f"--{first['loc'][0]}".replace("_", "-")
            raise UserError(f"{option}: {message} (got {first['input']!r})") from None


class CurvatureSettings(Measurement):
    """The loss around the weights, on fixed training images without augmentation."""

    kind: ClassVar[str] = "curvature"
    images: Count | None = None  # of the training set, the same for all trials; None: 500, or all if there are fewer
    eigenvalues: Annotated[Count, Field(le=100)] = 3  # how many of the largest
    steps: Few = 20  # of Lanczos, products with the Hessian
    vectors: Annotated[Few, Field(ge=2)] = 10  # of Hutchinson, more products
    radii: Radii = (0.05, 0.1, 0.2)  # of SAM

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.steps < self.eigenvalues:
            raise ValueError(f"--eigenvalues: {self.eigenvalues} need as many --steps of Lanczos, and not {self.steps}")
        names = [f"{radius:g}" for radius in self.radii]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"--radii: two have the name {twice.pop()}, of six digits")
        return self

    @property
    def columns(self) -> list[str]:
        """See `trainer.probe.curvature.curvature`."""
        return [
            "curvature/loss",
            "curvature/grad_norm",
            *(f"curvature/eigenvalue-{n + 1}" for n in range(self.eigenvalues)),
            "curvature/eigenvalue_error",
            "curvature/trace",
            "curvature/trace_se",
            *(f"curvature/sam-{radius:g}" for radius in self.radii),
        ]


class CorruptionSettings(Measurement):
    """The accuracy on corrupted test images."""

    kind: ClassVar[str] = "corruptions"
    corruptions: tuple[str, ...]  # such as noise-3

    @classmethod
    def of(cls, names: Sequence[str], precision: str | None) -> CorruptionSettings:
        """Of names: `all`, `blur` (all severities), `noise-3`. Raises `UserError` for an unknown one."""
        asked = dict.fromkeys(one for name in names for one in _corruptions(name))
        ordered = tuple(one.metric.removeprefix("test/") for one in ALL if one in asked)
        return cls.parse({"corruptions": ordered, "precision": precision})

    def beside(self, kept: Sequence[Measurement]) -> Measurement:
        """These corruptions and those that were measured before, in the same precision."""
        before = [one for one in kept if isinstance(one, CorruptionSettings) and one.precision == self.precision]
        return type(self).of([*self.corruptions, *(name for one in before for name in one.corruptions)], self.precision)

    @property
    def columns(self) -> list[str]:
        """`test/noise-3`: the share of the corrupted test images that are classified right."""
        return [one.metric for one in map(parse, self.corruptions)]


def _corruptions(name: str) -> Sequence[Corruption]:
    if name != "all" and name not in CORRUPTIONS:
        return [parse(name)]
    return [one for one in ALL if name in ("all", one.name)]


KINDS = {one.kind: one for one in (CurvatureSettings, CorruptionSettings)}
"""By name, what can be measured."""
