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
    "categorical_w_probabilities",
    "int_uniform",
    "uniform",
    "q_uniform",
    "log_uniform",
    "log_uniform_values",
    "inv_log_uniform",
    "inv_log_uniform_values",
    "q_log_uniform",
    "q_log_uniform_values",
    "normal",
    "q_normal",
    "log_normal",
    "q_log_normal",
    "beta",
    "q_beta",
]
_NORMAL: Final = {"mu", "sigma"}
_UNIFORM: Final = ("uniform", "log_uniform", "log_uniform_values", "inv_log_uniform", "inv_log_uniform_values")
KEYS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "constant": ({"value"}, set()),
    "categorical": ({"values"}, {"probabilities"}),
    "categorical_w_probabilities": ({"values", "probabilities"}, set()),
    **dict.fromkeys(("int_uniform", *_UNIFORM), ({"min", "max"}, set[str]())),
    **dict.fromkeys(("q_uniform", "q_log_uniform", "q_log_uniform_values"), ({"min", "max"}, {"q"})),
    **dict.fromkeys(("normal", "log_normal"), (set[str](), _NORMAL)),
    **dict.fromkeys(("q_normal", "q_log_normal"), (set[str](), {*_NORMAL, "q"})),
    "beta": (set(), {"a", "b"}),
    "q_beta": (set(), {"a", "b", "q"}),
}
"""By distribution, the keys that it needs and those that it may have."""

EXPONENTS: Final = ("log_uniform", "inv_log_uniform", "q_log_uniform")
"""Distributions whose `min` and `max` are natural logarithms."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Number = Annotated[int, Field(strict=True)] | Annotated[Finite, Field(strict=True)]
MAX_VALUES: Final = 1_000_000


class Parameter(BaseModel):
    """One entry of `parameters`: `{value: x}`, `{values: [...]}`, `{min: a, max: b}`, or a distribution by name.

    Without a `distribution`: `value` is a constant, `values` are categorical, whole `min` and `max` are `int_uniform`,
    others `uniform`, as in W&B. A draw is the inverse of the cumulative distribution at u, uniform in (0, 1). With U
    uniform in [min, max]:

        log_uniform       exp(U)                         log_uniform_values       exp(U) of log(min), log(max)
        inv_log_uniform   exp(-U)                        inv_log_uniform_values   as log_uniform_values
        normal            N(mu, sigma)                   log_normal               exp(N(mu, sigma))
        beta              Beta(a, b), in [0, 1]          q_...                    round(x / q) q of such an x

    A `q_` draw is rounded to the nearest multiple of q, even if that is outside of `min` and `max`; if these are
    multiples themselves, they have half the weight of the others. Values that are not whole are rounded to 12 digits:
    0.3, not 0.30000000000000004. Reference: W&B's engine (`sweeps` on PyPI, `params.py`).
    Raises `ValueError` for keys that do not belong together and ranges that hold nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    distribution: Distribution | None = None
    value: Any = None  # constant
    values: list[Any] | None = None  # categorical: what it may be; one that is listed twice has twice the weight
    probabilities: list[Number] | None = None  # of `values`, for random draws
    min: Number | None = None  # smallest value; of log_uniform: its natural logarithm
    max: Number | None = None  # largest value; whole numbers include it
    mu: Number = 0.0  # mean, of log_normal that of the logarithm
    sigma: Annotated[Number, Field(gt=0)] = 1.0  # standard deviation
    q: Annotated[Number, Field(gt=0)] = 1  # values are multiples of it
    a: Annotated[Number, Field(gt=0)] | None = None  # first shape of beta, by default 1
    b: Annotated[Number, Field(gt=0)] | None = None  # second shape of beta, by default 1

    @model_validator(mode="after")
    def _fits(self) -> Self:
        keys, name = self.model_fields_set - {"distribution"}, self.distribution or self.kind
        needed, allowed = KEYS[name]
        if missing := sorted(needed - keys):
            raise ValueError(f"{name} needs {' and '.join(map(repr, missing))}")
        if extra := sorted(keys - needed - allowed):
            valid = ", ".join(sorted(needed | allowed))
            raise ValueError(f"{name} does not use {', '.join(map(repr, extra))}; its keys: {valid}")
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
            raise ValueError(f"{name}: its values are too large or too small for a number")
        return self

    def _check_probabilities(self, probabilities: list[Any]) -> None:
        if len(probabilities) != len(self.values or ()):
            raise ValueError(f"{len(probabilities)} probabilities for {len(self.values or ())} values")
        if min(probabilities) < 0 or not math.isclose(sum(probabilities), 1.0, rel_tol=0, abs_tol=1.001e-5):  # as W&B
            raise ValueError(f"probabilities must be at least 0 and sum to one, not to {sum(probabilities):g}")

    def _check_range(self, low: float, high: float) -> None:
        if low >= high:
            raise ValueError(f"min {low} must be less than max {high}")
        if self.kind == "int_uniform" and not (isinstance(low, int) and isinstance(high, int)):
            raise ValueError(f"int_uniform needs whole numbers, not {low} and {high}")
        if self.kind.endswith("_values") and low <= 0:
            raise ValueError(f"{self.kind} needs min > 0, not {low}")
        if self.kind in EXPONENTS and (low < -700 or high > 700):
            raise ValueError(
                f"{self.kind}: min and max are natural logarithms, here of e^{low} and e^{high}; "
                f"{self.kind}_values has them as values"
            )

    @cached_property
    def kind(self) -> Distribution:
        """The distribution, also if the entry leaves it out; with probabilities it is categorical too."""
        if self.distribution == "categorical_w_probabilities":
            return "categorical"
        if self.distribution is not None:
            return self.distribution
        keys = self.model_fields_set
        if "values" in keys or "probabilities" in keys:
            return "categorical"
        if "value" in keys:
            return "constant"
        if keys & _NORMAL:
            return "normal"
        ends = (self.min, self.max)
        return "int_uniform" if all(isinstance(end, int) for end in ends) else "uniform"

    @property
    def is_fixed(self) -> bool:
        """Whether it has one value only."""
        return self.kind == "constant" or (self.kind == "categorical" and len(self.values or ()) == 1)

    @cached_property
    def grid(self) -> list[Any] | None:
        """All values of a grid in order, None if they cannot be listed. Of q_uniform: `min`, `min` + q, ... < `max`."""
        if self.kind == "constant":
            return [self.value]
        if self.kind == "categorical":
            return list(self.values or ())
        if self.min is None or self.max is None or self.kind not in ("int_uniform", "q_uniform"):
            return None
        if self.kind == "int_uniform":
            return list(range(int(self.min), int(self.max) + 1)) if self.max - self.min < MAX_VALUES else None
        count = math.ceil((self.max - self.min) / self.q)
        return [_rounded(self.min + k * self.q) for k in range(count)] if count <= MAX_VALUES else None

    @cached_property
    def support(self) -> list[Any] | None:
        """The different values that may be drawn, None if they cannot be listed."""
        if self.kind == "categorical":
            return list({repr(value): value for value in self.values or ()}.values())
        if not self.kind.startswith("q_") or self._multiples is None:
            return self.grid
        first, last = self._multiples
        return [_rounded(k * self.q) for k in range(first, last + 1)] if last - first < MAX_VALUES else None

    @cached_property
    def _multiples(self) -> tuple[int, int] | None:
        """The first and the last k for which k q may be drawn; None if there is no last one."""
        low, high = self._ends()
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        slack = 0.5 + 1e-9  # a draw is beyond the middle of two multiples, or before it
        return math.floor(low / self.q + slack), math.ceil(high / self.q - slack)

    def at(self, u: float) -> Any:
        """The value at u in (0, 1) of the inverse cumulative distribution."""
        if self.kind == "constant":
            return self.value
        if self.kind == "categorical":
            return self._listed(u)
        low, high = self._ends()
        if self.kind == "int_uniform":
            count = int(high) - int(low) + 1
            return int(low) + min(int(u * count), count - 1)
        return self._quantized(self._continuous(u, low, high))

    def _listed(self, u: float) -> Any:
        """One of `values`: the first whose probability, with those before it, exceeds u."""
        assert self.values is not None
        if self.probabilities is None:
            return self.values[min(int(u * len(self.values)), len(self.values) - 1)]
        reached = accumulate(self.probabilities)
        return next((v for v, p in zip(self.values, reached, strict=True) if u < p), self.values[-1])

    def _continuous(self, u: float, low: float, high: float) -> float:
        """The value at u before it is rounded to a multiple of q."""
        if self.kind.endswith("normal"):
            drawn = NormalDist(self.mu, self.sigma).inv_cdf(u)
            return math.exp(drawn) if "log" in self.kind else drawn
        if self.kind.endswith("beta"):
            from scipy.special import betaincinv

            return float(betaincinv(*(1.0 if shape is None else shape for shape in (self.a, self.b)), u))
        if "log" not in self.kind:
            return low + u * (high - low)
        return math.exp(math.log(low) + u * (math.log(high) - math.log(low)))

    def _quantized(self, value: float) -> int | float:
        if not self.kind.startswith("q_"):
            return value
        k = round(value / self.q)
        if self._multiples is not None:  # the middle of two multiples is drawn with probability 0
            k = min(max(k, self._multiples[0]), self._multiples[1])
        return _rounded(k * self.q)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The smallest and the largest number that may be drawn, infinite if there is none; None for words."""
        if self.kind in ("constant", "categorical"):
            numbers = [value for value in self.grid or () if isinstance(value, int | float)]
            return (min(numbers), max(numbers)) if numbers else None
        if self.kind.startswith("q_") and self._multiples is not None:
            first, last = self._multiples
            return _rounded(first * self.q), _rounded(last * self.q)
        return self._ends()

    @property
    def extremes(self) -> list[Any]:
        """The values that a check of all its values looks at: of a list each, else the first and the last."""
        if self.kind == "categorical":
            return list(self.values or ())
        return [self.at(1e-6), self.at(1 - 1e-6)]

    def _ends(self) -> tuple[float, float]:
        """Smallest and largest value before it is rounded to a multiple of q."""
        if self.kind.endswith("normal"):
            return 0.0 if "log" in self.kind else -math.inf, math.inf
        if self.kind.endswith("beta"):
            return 0.0, 1.0
        assert self.min is not None and self.max is not None
        if self.kind == "inv_log_uniform":
            return math.exp(-self.max), math.exp(-self.min)
        return (math.exp(self.min), math.exp(self.max)) if self.kind in EXPONENTS else (self.min, self.max)

    def optuna(self) -> BaseDistribution:
        """What Optuna searches; `from_optuna` gives the value of a point in it.

        Values of a list are searched by their index, the normal and beta ones by u.
        """
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.kind == "categorical":
            return CategoricalDistribution(range(len(self.values or ())))
        if self._is_by_u:
            return FloatDistribution(1e-6, 1 - 1e-6)
        if self.kind == "q_uniform":
            assert self._multiples is not None
            return IntDistribution(*self._multiples)
        low, high = self._ends()
        if self.kind == "int_uniform":
            return IntDistribution(int(low), int(high))
        return FloatDistribution(low, high, log="log" in self.kind)

    def from_optuna(self, raw: Any) -> Any:
        """The parameter's value at a point of `optuna()`."""
        if self.kind == "categorical":
            assert self.values is not None
            return self.values[raw]
        if self._is_by_u:
            return self.at(raw)
        return _rounded(raw * self.q) if self.kind == "q_uniform" else self._quantized(raw)

    @property
    def _is_by_u(self) -> bool:
        return self.kind.endswith(("normal", "beta"))


def _rounded(value: float) -> int | float:
    """Without the last digits that a product or a sum of decimal fractions leaves."""
    return value if isinstance(value, int) else float(f"{value:.12g}")
