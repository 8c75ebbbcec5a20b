r"""Convex problems with known constants, in NumPy: f(x) = (1/n) sum_i f_i(x) with minimiser x* and minimum f*.

Imports no torch: `plan` checks radii with it, schedulers read L from it, and analysis draws bounds with it. The
trainer's side is `trainer.convex.task`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, Literal

import numpy as np

from polysweep.trainer.components.options import RidgeOptions
from polysweep.trainer.components.plugins import component
from polysweep.trainer.components.registry import TASKS
from polysweep.trainer.errors import ConfigError

Array = np.ndarray[Any, np.dtype[np.float64]]

CONVEX: Final = tuple(name for name, part in TASKS.items() if part.problem)
"""The tasks whose constants are known."""

NEWTON_STEPS: Final = 100
GRADIENT_FLOOR: Final = 1e-13
"""Norm of the gradient at which one more step of Newton's method is the last; the data are of order one."""


@dataclass(frozen=True, eq=False)
class Problem:
    r"""One convex problem.

        ridge:     f_i(x) = (a_i x - b_i)^2 / 2 + lambda_r ||x||^2 / 2
        logistic:  f_i(x) = log(1 + exp(-b_i a_i x)),  b_i = -1 or 1

    `a` is (n, d) with rows a_i, `b` (n,), `x_star` (d,). `smoothness` (n,) are the L_i; L, L_max and mu (0 where f is
    not strongly convex) follow from `a`, sigma^2 from the lower bound in use.
    """

    kind: Literal["ridge", "logistic"]
    a: Array
    b: Array
    lambda_r: float = 0.0
    known: Array | None = field(default=None, repr=False)
    """x* where it is known without solving: of a consistent system without regulariser."""

    @property
    def n(self) -> int:
        """Number of f_i."""
        return int(self.a.shape[0])

    @property
    def d(self) -> int:
        """Dimension of x."""
        return int(self.a.shape[1])

    @cached_property
    def gram(self) -> Array:
        """A^T A / n, (d, d); with lambda_r I added it is the Hessian of `ridge`."""
        return self.a.T @ self.a / self.n

    @cached_property
    def hessian(self) -> Array:
        """The Hessian of `ridge`, (d, d): exactly symmetric."""
        matrix = self.gram + self.lambda_r * np.eye(self.d)
        return (matrix + matrix.T) / 2

    @cached_property
    def _spectrum(self) -> Array:
        """Eigenvalues of A^T A / n in order, (min(n, d),): from singular values, so that small ones have digits."""
        return np.asarray(np.square(np.linalg.svd(self.a, compute_uv=False))[::-1] / self.n, np.float64)

    @property
    def _curvature(self) -> float:
        """The largest second derivative of one term's outer function."""
        return 1.0 if self.kind == "ridge" else 0.25

    @property
    def L(self) -> float:  # noqa: N802  # the paper's letter
        """Smoothness of f."""
        return float(self._curvature * self._spectrum[-1] + self.lambda_r)

    @cached_property
    def smoothness(self) -> Array:
        """L_i of every f_i, (n,)."""
        return np.asarray(self._curvature * np.square(self.a).sum(axis=1) + self.lambda_r, dtype=np.float64)

    @property
    def L_max(self) -> float:  # noqa: N802
        """The largest L_i."""
        return float(self.smoothness.max())

    @property
    def mu(self) -> float:
        """Strong convexity of f: 0 for `logistic`, and for `ridge` without regulariser where n < d."""
        if self.kind == "logistic":
            return 0.0
        least = self._spectrum[0] if self.n >= self.d else 0.0
        return float(least + self.lambda_r)

    @cached_property
    def x_star(self) -> Array:
        """A minimiser, (d,): in closed form, or by Newton's method to a gradient of 1e-13."""
        if self.known is not None:
            return self.known
        if self.kind == "ridge":
            return np.asarray(np.linalg.lstsq(self.hessian, self.a.T @ self.b / self.n, rcond=None)[0], np.float64)
        return _newton(self)

    @cached_property
    def f_star(self) -> float:
        """f(x*); exactly 0 for a consistent system without regulariser."""
        return 0.0 if self.known is not None else float(self.value(self.x_star))

    @property
    def is_interpolated(self) -> bool:
        """Whether x* minimises every f_i: then sigma^2 = 0 for the lower bound 0."""
        return self.known is not None

    def sigma2(self, lower_bound: float = 0.0) -> float:
        """sigma^2 = f(x*) - E[l_S] of eq. (variance) for one lower bound l_S of every mini-batch."""
        return self.f_star - lower_bound

    def value(self, x: Array) -> float:
        """f(x) for x of shape (d,)."""
        z = self.a @ x
        if self.kind == "ridge":
            return float(np.square(z - self.b).mean() / 2 + self.lambda_r * np.square(x).sum() / 2)
        return float(np.logaddexp(0.0, -self.b * z).mean())

    def gradient(self, x: Array) -> Array:
        """The gradient of f at x, (d,) -> (d,)."""
        z = self.a @ x
        outer = z - self.b if self.kind == "ridge" else -self.b / (1.0 + np.exp(self.b * z))
        return np.asarray(self.a.T @ outer / self.n + self.lambda_r * x)

    def curvature(self, x: Array) -> Array:
        """The Hessian of f at x, (d,) -> (d, d)."""
        if self.kind == "ridge":
            return self.hessian
        p = 1.0 / (1.0 + np.exp(-self.a @ x))
        return np.asarray((self.a.T * (p * (1 - p))) @ self.a / self.n)

    @cached_property
    def grain(self) -> float:
        """How far the found minimiser may be from the true one: ||grad f(x*)|| and its rounding over the curvature.

        0 for `ridge`, whose loss and gradient are computed from x - x* and so have x* itself as their minimiser.
        """
        if self.kind == "ridge":
            return 0.0
        least = float(np.linalg.eigvalsh(self.curvature(self.x_star))[0])
        rounding = float(np.finfo(np.float64).eps * np.sqrt(self.L_max))
        return (float(np.linalg.norm(self.gradient(self.x_star))) + rounding) / least

    def constants(self) -> dict[str, Any]:
        """What a trial's record keeps: L, L_max, mu, f_star, sigma2 (of the lower bound 0) and every L_i."""
        return {
            "L": self.L,
            "L_max": self.L_max,
            "mu": self.mu,
            "f_star": self.f_star,
            "sigma2": self.sigma2(),
            "L_i": self.smoothness.tolist(),
        }


def ridge(
    n: int,
    d: int,
    condition: float,
    lambda_r: float,
    *,
    consistent: bool,
    problem_seed: int,
    matrix: Literal["conditioned", "gaussian"] = "conditioned",
    **_shared: Any,
) -> Problem:
    r"""Ridge regression as in the paper's section "Verification of the theory".

    `conditioned`: A = U S V^T after Lenard and Minkoff (1984): random orthogonal U (n, d) and V (d, d), and singular
    values in geometric progression from condition^(-1/2) to condition^(1/2), so that the condition number of A is
    `condition` exactly and that of A^T A its square. Its rows have norms around 1, so that a Polyak step with
    mini-batches is well above 1. `gaussian`: A has standard normal entries, as in the authors' notebook for the
    stochastic case; its rows have norms around sqrt(d), and a Polyak step is well below 1.

    With `consistent`, b = A x for x of standard normal entries, so that f* = 0 where lambda_r = 0; otherwise b has
    standard normal entries.
    """
    is_drawn = matrix == "gaussian"
    if is_drawn and condition != RidgeOptions().condition:
        raise ConfigError("task_options.condition", f"{condition:g} is of matrix 'conditioned'; leave it out")
    if n < d and not is_drawn:
        raise ConfigError("task_options.n", f"{n} is less than d = {d}: the construction of A needs n >= d")
    if d == 1 and condition != 1 and not is_drawn:
        raise ConfigError("task_options.condition", f"{condition:g} with d = 1, where it can only be 1")
    rng = np.random.default_rng(problem_seed)
    if is_drawn:
        a = rng.standard_normal((n, d))
    else:
        u, v = _orthogonal(rng, n, d), _orthogonal(rng, d, d)
        a = (u * np.geomspace(condition**-0.5, condition**0.5, d)) @ v.T
    if not consistent:
        return Problem("ridge", a, rng.standard_normal(n), lambda_r)
    x = rng.standard_normal(d)
    return Problem("ridge", a, a @ x, lambda_r, known=None if lambda_r else x)


def logistic(n: int, d: int, flipped: float, *, problem_seed: int, **_shared: Any) -> Problem:
    """Logistic regression that no hyperplane separates: convex, not strongly convex, with a minimiser.

    A has standard normal entries, labels are the sign of A x for x of standard normal entries, and a share `flipped`
    of them is turned round.
    """
    if n < d:
        raise ConfigError("task_options.n", f"{n} is less than d = {d}: with n >= d labels can be inseparable")
    rng = np.random.default_rng(problem_seed)
    a = rng.standard_normal((n, d))
    labels = np.where(a @ rng.standard_normal(d) >= 0, 1.0, -1.0)
    turned = rng.permutation(n)[: round(flipped * n)]
    labels[turned] *= -1
    problem = Problem("logistic", a, labels)
    try:
        _ = problem.x_star
    except np.linalg.LinAlgError:
        raise ConfigError(
            "task_options.flipped",
            f"a hyperplane separates the {n} labels with {len(turned)} turned round, so f has no minimiser; "
            "take more of them, or n further above d",
        ) from None
    return problem


def problem_of(task: str, options: Mapping[str, Any]) -> Problem:
    """The problem of a convex task; raises `ConfigError` if the options make none."""
    return _problem(task, json.dumps(dict(options), sort_keys=True))


@lru_cache(maxsize=32)
def _problem(task: str, options: str) -> Problem:
    part = component("task", task)
    values = part.options(**json.loads(options)).model_dump()
    return ridge(**values) if part.problem == "ridge" else logistic(**values)


def _orthogonal(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Orthonormal columns, uniformly distributed: QR of normal entries with the signs of R's diagonal."""
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    return np.asarray(q * np.sign(np.diag(r)))


def _newton(problem: Problem) -> Array:
    """The minimiser of `logistic` by Newton's method with halved steps. Raises `LinAlgError` if none exists."""
    x = np.zeros(problem.d)
    gradient = problem.gradient(x)
    for _ in range(NEWTON_STEPS):
        if (problem.b * (problem.a @ x)).min() > 0:
            raise np.linalg.LinAlgError("a hyperplane separates the labels: f has no minimiser")
        direction = np.linalg.solve(problem.curvature(x), gradient)
        if np.linalg.norm(gradient) <= GRADIENT_FLOOR:
            last = x - direction  # the gradient of which is down to rounding
            return last if np.linalg.norm(problem.gradient(last)) < np.linalg.norm(gradient) else x
        size = 1.0
        while size > 1e-6 and problem.value(x - size * direction) > problem.value(x) + 1e-15:
            size /= 2
        x = x - size * direction
        gradient = problem.gradient(x)
    raise np.linalg.LinAlgError("no minimiser within reach")
