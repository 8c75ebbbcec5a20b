"""Early termination of points that fall behind: the `hyperband` of the W&B sweep format. Pure.

At each rung r (a number of epochs) a point's value is the best of its curve up to r; the curve is the mean over the
point's seeds. The best share 1/eta of the points that have reached the rung survives, the others stop.
Reference: Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar, Hyperband (JMLR 2018), in the asynchronous form of Li et al.,
A System for Massively Parallel Hyperparameter Tuning (MLSys 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Whole = Annotated[int, Field(ge=1, strict=True)]


class Hyperband(BaseModel):
    """`early_terminate` of a spec.

    Rungs: `min_iter`, `min_iter` eta, `min_iter` eta^2, ... or `max_iter` / eta, ..., `max_iter` / eta^s.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["hyperband"]
    min_iter: Whole | None = None  # epochs of the first rung
    max_iter: Whole | None = None  # epochs of a whole trial, from which the rungs are counted down
    s: Annotated[int, Field(ge=1, le=64, strict=True)] | None = None  # number of rungs below max_iter
    eta: Annotated[int, Field(ge=2, strict=True)] = 3  # one of eta survives

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.min_iter is None) == (self.max_iter is None):
            raise ValueError("hyperband needs either 'min_iter' or 'max_iter' (with 's')")
        if self.max_iter is not None and self.s is None:
            raise ValueError("hyperband with 'max_iter' needs 's', the number of rungs")
        if self.min_iter is not None and self.s is not None:
            raise ValueError("'s' belongs to 'max_iter'; with 'min_iter' leave it out")
        if self.max_iter is not None and self.s is not None and self.max_iter // self.eta**self.s < 1:
            raise ValueError(f"max_iter {self.max_iter} / eta {self.eta} ^ s {self.s} is less than one epoch")
        return self

    def rungs(self, epochs: int) -> list[int]:
        """The rungs of a trial of so many epochs, ascending; none at its end."""
        if self.min_iter is not None:
            count = 1 + max(0, math.ceil(math.log(max(epochs, 1) / self.min_iter, self.eta)) + 1)
            epochs_of_rungs = [self.min_iter * self.eta**k for k in range(count)]
        else:
            assert self.max_iter is not None and self.s is not None
            epochs_of_rungs = [self.max_iter // self.eta**k for k in range(self.s, 0, -1)]
        return [rung for rung in dict.fromkeys(epochs_of_rungs) if rung < epochs]


def survives(own: Sequence[float], others: Sequence[Sequence[float]], rung: int, eta: int, goal: str) -> bool:
    """Whether the point with the curve `own` is among the best ceil(n / eta) at `rung`; ties survive.

    `own` has `rung` values or more; of `others` those count that have reached it.
    """
    best = max if goal == "maximize" else min
    values = [best(curve[:rung]) for curve in (own, *others) if len(curve) >= rung]
    ranked = sorted(values, reverse=goal == "maximize")
    threshold = ranked[math.ceil(len(ranked) / eta) - 1]
    mine = best(own[:rung])
    return mine >= threshold if goal == "maximize" else mine <= threshold


def mean_curve(curves: Sequence[Sequence[float | None]]) -> list[float]:
    """The mean over seeds, as far as every seed has come; empty if one has no value, as after divergence."""
    mean = []
    for values in zip(*curves, strict=False):
        if any(value is None or not math.isfinite(value) for value in values):
            break
        mean.append(sum(v for v in values if v is not None) / len(values))
    return mean
