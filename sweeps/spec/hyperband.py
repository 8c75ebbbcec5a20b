"""Early termination of points that fall behind: the `hyperband` of the W&B sweep format. Pure.

A point is judged once, when it has come to a rung r (a number of epochs), by the mean over its seeds. Of the n points
that have come as far, those stop whose value after epoch r is worse than the one of rank floor(n / eta), counted from
0: about 1/eta of them go on, and of equal ones all. So does W&B's engine (`sweeps` on PyPI, `hyperband_stopping.py`)
by default. With `strict: false` the best value up to epoch r is compared with it.
Reference: Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar, Hyperband (JMLR 2018), in the asynchronous form of Li et al.,
A System for Massively Parallel Hyperparameter Tuning (MLSys 2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice, repeat, takewhile
from operator import mul, truediv
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Whole = Annotated[int, Field(ge=1, strict=True)]
Number = Annotated[int, Field(strict=True)] | Annotated[float, Field(strict=True, allow_inf_nan=False)]
MOST_RUNGS: Final = 100


class Hyperband(BaseModel):
    """`early_terminate` of a spec.

    Rungs: `max_iter` / eta, ..., `max_iter` / eta^s if both are there, else `min_iter`, `min_iter` eta, `min_iter`
    eta^2, ...; each is rounded down.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["hyperband"]
    min_iter: Whole | None = None  # epochs of the first rung
    max_iter: Whole | None = None  # epochs of a whole trial, from which the rungs are counted down
    s: Whole | None = None  # number of rungs below max_iter
    eta: Annotated[Number, Field(gt=1)] = 3  # one of eta survives
    strict: Annotated[bool, Field(strict=True)] | None = None  # false: the best value so far counts; by default true

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_iter is None and self.max_iter is None:
            raise ValueError("hyperband needs either 'min_iter' or 'max_iter' (with 's')")
        if self.min_iter is None and self.s is None:
            raise ValueError("hyperband with 'max_iter' needs 's', the number of rungs")
        if self._counts_down and self.max_iter is not None and self.max_iter / self.eta < 1:
            raise ValueError(f"max_iter {self.max_iter} / eta {self.eta} is less than one epoch")
        return self

    @property
    def _counts_down(self) -> bool:
        return self.max_iter is not None and self.s is not None

    @property
    def ignored(self) -> list[str]:
        """The keys in the file that the rungs do not depend on, as in W&B."""
        keys = ("min_iter",) if self._counts_down else ("max_iter", "s")
        return [key for key in keys if getattr(self, key) is not None]

    def rungs(self, epochs: int) -> list[int]:
        """The rungs of a trial of so many epochs, ascending; none at its end."""
        rungs: Iterable[float]
        if self._counts_down:
            assert self.max_iter is not None
            counted = accumulate(repeat(self.eta, self.s or 0), truediv, initial=self.max_iter)
            rungs = takewhile(lambda rung: rung >= 1, islice(counted, 1, None))
        else:
            assert self.min_iter is not None
            counted = accumulate(repeat(self.eta, MOST_RUNGS - 1), mul, initial=self.min_iter)
            rungs = takewhile(lambda rung: rung < epochs, counted)
        return sorted({int(rung) for rung in rungs if int(rung) < epochs})


def survives(
    own: Sequence[float], others: Sequence[Sequence[float]], rung: int, eta: float, goal: str, *, strict: bool = True
) -> bool:
    """Whether the point with the curve `own` goes on beyond `rung`.

    `own` has `rung` values or more; of `others` those count that have come to it.
    """
    sign = -1.0 if goal == "maximize" else 1.0
    ranked = sorted(sign * curve[rung - 1] for curve in (own, *others) if len(curve) >= rung)
    threshold = ranked[int(1.0 / eta * len(ranked))]
    mine = own[rung - 1] if strict else (max if goal == "maximize" else min)(own[:rung])
    return sign * mine <= threshold


def mean_curve(curves: Sequence[Sequence[float | None]]) -> list[float]:
    """The mean over seeds, as far as every seed has come; empty if one has no value, as after divergence."""
    mean = []
    for values in zip(*curves, strict=False):
        if any(value is None or not math.isfinite(value) for value in values):
            break
        mean.append(sum(v for v in values if v is not None) / len(values))
    return mean
