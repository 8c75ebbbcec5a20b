"""What one parameter of a sweep may be: the entries of the W&B sweep format, as values, draws and Optuna's."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import accumulate
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Distribution = Literal[
    "constant",
    "categorical",
    "int_uniform",
    "uniform",
    "q_uniform",
    "log_uniform",
    "log_uniform_values",
    "q_log_uniform_values",
    "normal",
    "q_normal",
    "log_normal",
]
KEYS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "constant": ({"value"}, set()),
    "categorical": ({"values"}, {"probabilities"}),
    "int_uniform": ({"min", "max"}, set()),
    "uniform": ({"min", "max"}, set()),
    "q_uniform": ({"min", "max"}, {"q"}),
    "log_uniform": ({"min", "max"}, set()),
    "log_uniform_values": ({"min", "max"}, set()),
    "q_log_uniform_values": ({"min", "max"}, {"q"}),
    "normal": (set(), {"mu", "sigma"}),
    "q_normal": (set(), {"mu", "sigma", "q"}),
    "log_normal": (set(), {"mu", "sigma"}),
}
"""By distribution, the keys that it needs and those that it may have."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Number = Annotated[int, Field(strict=True)] | Annotated[Finite, Field(strict=True)]
MAX_VALUES: Final = 1_000_000


class Parameter(BaseModel):
    """One entry of `parameters`: `{value: x}`, `{values: [...]}`, `{min: a, max: b}`, or a distribution by name.

    Without a `distribution`: `value` is a constant, `values` are categorical, whole `min` and `max` are `int_uniform`,
    others `uniform`, as in W&B. A draw is the inverse of the cumulative distribution at u, uniform in (0, 1):
    `log_uniform` is exp(uniform) of min and max, the `_values` ones give min and max as values; `q` rounds to its
    multiples inside the range. Raises `ValueError` for keys that do not belong together and ranges that hold nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    distribution: Distribution | None = None
    value: Any = None  # constant
    values: list[Any] | None = None  # categorical: what it may be
    probabilities: list[Number] | None = None  # of `values`, for random draws
    min: Number | None = None  # smallest value; of log_uniform: its natural logarithm
    max: Number | None = None  # largest value; whole numbers include it
    mu: Number = 0.0  # mean, of log_normal that of the logarithm
    sigma: Annotated[Number, Field(gt=0)] = 1.0  # standard deviation
    q: Annotated[Number, Field(gt=0)] = 1  # values are multiples of it

    @model_validator(mode="after")
    def _fits(self) -> Self:
        keys = self.model_fields_set - {"distribution"}
        needed, allowed = KEYS[self.kind]
        if missing := sorted(needed - keys):
            raise ValueError(f"{self.kind} needs {' and '.join(map(repr, missing))}")
        if extra := sorted(keys - needed - allowed):
            valid = ", ".join(sorted(needed | allowed))
            raise ValueError(f"{self.kind} does not use {', '.join(map(repr, extra))}; its keys: {valid}")
        if self.probabilities is not None:
            self._check_probabilities(self.probabilities)
        try:
            if self.min is not None and self.max is not None:
                self._check_range(self.min, self.max)
            is_finite = self.kind in ("constant", "categorical") or all(
                math.isfinite(float(self.at(u))) for u in (1e-9, 1 - 1e-9)
            )
        except OverflowError:
            is_finite = False
        if not is_finite:
            raise ValueError(f"{self.kind}: its values are too large or too small for a number")
        return self

    def _check_probabilities(self, probabilities: list[Any]) -> None:
        if len(probabilities) != len(self.values or ()):
            raise ValueError(f"{len(probabilities)} probabilities for {len(self.values or ())} values")
        if min(probabilities) < 0 or not math.isclose(sum(probabilities), 1.0, abs_tol=1e-6):
            raise ValueError(f"probabilities must be at least 0 and sum to one, not to {sum(probabilities):g}")

    def _check_range(self, low: float, high: float) -> None:
        if low >= high:
            raise ValueError(f"min {low} must be less than max {high}")
        if self.kind == "int_uniform" and not (isinstance(low, int) and isinstance(high, int)):
            raise ValueError(f"int_uniform needs whole numbers, not {low} and {high}")
        if self.kind.endswith("_values") and low <= 0:
            raise ValueError(f"{self.kind} needs min > 0, not {low}")
        if self.kind == "log_uniform" and (low < -700 or high > 700):
            raise ValueError(f"log_uniform: min and max are natural logarithms, here of e^{low} and e^{high}")
        if "q_" in self.kind and self._multiples[0] > self._multiples[1]:
            raise ValueError(f"no multiple of q = {self.q} lies between min {low} and max {high}")

    @cached_property
    def kind(self) -> Distribution:
        """The distribution, also if the entry leaves it out."""
        if self.distribution is not None:
            return self.distribution
        keys = self.model_fields_set
        if "values" in keys or "probabilities" in keys:
            return "categorical"
        if "value" in keys:
            return "constant"
        if keys & {"mu", "sigma"}:
            return "normal"
        ends = (self.min, self.max)
        return "int_uniform" if all(isinstance(end, int) for end in ends) else "uniform"

    @property
    def is_fixed(self) -> bool:
        """Whether it has one value only."""
        return self.kind == "constant" or (self.kind == "categorical" and len(self.values or ()) == 1)

    @cached_property
    def grid(self) -> list[Any] | None:
        """All values in order, None if they cannot be listed."""
        if self.kind == "constant":
            return [self.value]
        if self.kind == "categorical":
            return list(self.values or ())
        if self.kind == "int_uniform":
            low, high = int(self.min or 0), int(self.max or 0)
            return list(range(low, high + 1)) if high - low < MAX_VALUES else None
        if self.kind == "q_uniform":
            first, last = self._multiples
            return [self._multiple(k) for k in range(first, last + 1)] if last - first < MAX_VALUES else None
        return None

    @cached_property
    def _multiples(self) -> tuple[int, int]:
        """The first and the last k for which k q is in the range."""
        assert self.min is not None and self.max is not None
        slack = 1e-9
        return math.ceil(self.min / self.q - slack), math.floor(self.max / self.q + slack)

    def _multiple(self, k: int) -> int | float:
        return k * self.q if isinstance(self.q, int) else float(f"{k * self.q:.12g}")

    def at(self, u: float) -> Any:
        """The value at u in (0, 1) of the inverse cumulative distribution."""
        if self.grid is not None and self.probabilities is None:
            return self.grid[min(int(u * len(self.grid)), len(self.grid) - 1)]
        if self.kind == "categorical":
            assert self.values is not None and self.probabilities is not None
            reached = accumulate(self.probabilities)
            return next((v for v, p in zip(self.values, reached, strict=True) if u < p), self.values[-1])
        if self.kind.endswith("normal"):
            drawn = NormalDist(self.mu, self.sigma).inv_cdf(u)
            return self._quantized(math.exp(drawn) if self.kind == "log_normal" else drawn)
        low, high = self._ends()
        if self.kind == "int_uniform":
            return min(int(low + u * (high - low + 1)), int(high))
        if "log" not in self.kind:
            return self._quantized(low + u * (high - low))
        return self._quantized(math.exp(math.log(low) + u * (math.log(high) - math.log(low))))

    @property
    def ends(self) -> tuple[float, float] | None:
        """The smallest and the largest number that may be drawn, infinite if there is none; None for words."""
        if self.kind in ("constant", "categorical"):
            numbers = [value for value in self.grid or () if isinstance(value, int | float)]
            return (min(numbers), max(numbers)) if numbers else None
        if self.kind.endswith("normal"):
            return -math.inf, math.inf
        if "q_" in self.kind:
            first, last = self._multiples
            return self._multiple(first), self._multiple(last)
        return self._ends()

    @property
    def extremes(self) -> list[Any]:
        """The values that a check of all its values looks at: of a list each, else the first and the last."""
        if self.kind == "categorical":
            return list(self.values or ())
        return [self.at(1e-6), self.at(1 - 1e-6)]

    def _ends(self) -> tuple[float, float]:
        """Smallest and largest value."""
        assert self.min is not None and self.max is not None
        if self.kind == "log_uniform":
            return math.exp(self.min), math.exp(self.max)
        return self.min, self.max

    def _quantized(self, value: float) -> int | float:
        if "q_" not in self.kind:
            return value
        k = round(value / self.q)
        if self.min is not None:
            k = min(max(k, self._multiples[0]), self._multiples[1])
        return self._multiple(k)

    def optuna(self) -> BaseDistribution:
        """What Optuna searches; `from_optuna` gives the value of a point in it.

        Values of a list are searched by their index, the normal ones by u.
        """
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.kind == "categorical":
            return CategoricalDistribution(range(len(self.values or ())))
        if self.kind == "q_uniform":
            return IntDistribution(*self._multiples)
        if self.kind.endswith("normal"):
            return FloatDistribution(1e-6, 1 - 1e-6)
        low, high = self._ends()
        if self.kind == "int_uniform":
            return IntDistribution(int(low), int(high))
        return FloatDistribution(low, high, log="log" in self.kind)

    def from_optuna(self, raw: Any) -> Any:
        """The parameter's value at a point of `optuna()`."""
        if self.kind == "categorical":
            assert self.values is not None
            return self.values[raw]
        if self.kind == "q_uniform":
            return self._multiple(raw)
        if self.kind.endswith("normal"):
            return self.at(raw)
        return self._quantized(raw)
