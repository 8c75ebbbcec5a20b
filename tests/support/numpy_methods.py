"""Every method of the theory experiments as a plain NumPy loop over one trial: what the stacks are compared with.

A method is `method(problem, x, batches, **parameters)` and yields x^1, x^2, ...; `batches` has an index array a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from polysweep.trainer.convex.problem import Problem

Array = Any
Batches = Iterable[Array]


class Loss:
    """f and its gradient on a mini-batch, from the rows of A."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def value(self, x: Array, batch: Array) -> float:
        """f_S(x)."""
        a, b = self.problem.a[batch], self.problem.b[batch]
        if self.problem.kind == "logistic":
            return float(np.logaddexp(0, -b * (a @ x)).mean())
        return float(np.linalg.norm(a @ x - b) ** 2 / (2 * len(batch)) + self.problem.lambda_r / 2 * np.dot(x, x))

    def grad(self, x: Array, batch: Array) -> Array:
        """The gradient of f_S at x."""
        a, b = self.problem.a[batch], self.problem.b[batch]
        if self.problem.kind == "logistic":
            return a.T @ (-b / (1 + np.exp(b * (a @ x)))) / len(batch)
        return a.T @ (a @ x - b) / len(batch) + self.problem.lambda_r * x


def usam(
    problem: Problem,
    x: Array,
    batches: Batches,
    rho: float | Callable[[int], float],
    gamma: float | Callable[[int], float] | None = None,
    cap: float = np.inf,
    lower_bound: float = 0.0,
    normalised: bool = False,
) -> Iterator[Array]:
    """USAM (SAM where `normalised`) with a step size `gamma`, or the Polyak scheduler where that is None."""
    loss = Loss(problem)
    for t, batch in enumerate(batches):
        g = loss.grad(x, batch)
        radius = rho(t) if callable(rho) else rho
        e = x + radius * (g / np.linalg.norm(g) if normalised else g)
        ge = loss.grad(e, batch)
        if gamma is None:
            excess = loss.value(e, batch) - lower_bound - np.dot(ge, e - x)
            step = min(max(excess, 0.0) / np.linalg.norm(ge) ** 2, cap)
        else:
            step = gamma(t) if callable(gamma) else gamma
        x = x - step * ge
        yield x


def adasam(
    problem: Problem, x: Array, batches: Batches, lr: float, rho: float, beta1: float, beta2: float, eps: float = 1e-8
) -> Iterator[Array]:
    """Sun et al. 2023."""
    loss = Loss(problem)
    m, v, h = np.zeros_like(x), np.full_like(x, eps**2), np.full_like(x, eps**2)
    for batch in batches:
        s = loss.grad(x, batch)
        g = loss.grad(x + rho * s / np.linalg.norm(s), batch)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        h = np.maximum(h, v)
        x = x - lr * m / np.sqrt(h)
        yield x


def lightsam1(
    problem: Problem, x: Array, batches: Batches, lr: float, rho: float, eps: float = 1e-8
) -> Iterator[Array]:
    """Cheng et al. 2025, AdaGrad-Norm."""
    loss = Loss(problem)
    u = v = eps**2
    for batch in batches:
        s = loss.grad(x, batch)
        u = u + np.linalg.norm(s) ** 2
        g = loss.grad(x + rho * s / np.sqrt(u), batch)
        v = v + np.linalg.norm(g) ** 2
        x = x - lr * g / np.sqrt(v)
        yield x


def lightsam2(
    problem: Problem, x: Array, batches: Batches, lr: float, rho: float, eps: float = 1e-8
) -> Iterator[Array]:
    """Cheng et al. 2025, AdaGrad."""
    loss = Loss(problem)
    u, v = np.full_like(x, eps**2), np.full_like(x, eps**2)
    for batch in batches:
        s = loss.grad(x, batch)
        u = u + s * s
        g = loss.grad(x + rho * s / np.sqrt(u), batch)
        v = v + g * g
        x = x - lr * g / np.sqrt(v)
        yield x


def lightsam3(
    problem: Problem, x: Array, batches: Batches, lr: float, rho: float, beta1: float, beta2: float, eps: float = 1e-8
) -> Iterator[Array]:
    """Cheng et al. 2025, Adam."""
    loss = Loss(problem)
    r, u = np.zeros_like(x), np.full_like(x, eps**2)
    m, v = np.zeros_like(x), np.full_like(x, eps**2)
    for batch in batches:
        s = loss.grad(x, batch)
        r = beta1 * r + (1 - beta1) * s
        u = beta2 * u + (1 - beta2) * s * s
        g = loss.grad(x + rho * r / np.sqrt(u), batch)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        x = x - lr * m / np.sqrt(v)
        yield x


def sasam(problem: Problem, x: Array, batches: Batches, lr: float) -> Iterator[Array]:
    """Naganuma et al. 2024."""
    loss = Loss(problem)
    eta, theta, previous = lr, np.inf, x
    for t, batch in enumerate(batches):
        s = loss.grad(x, batch)
        if t:
            turned = np.linalg.norm(s - loss.grad(previous, batch))
            new = min(np.linalg.norm(x - previous) / (2 * turned), np.sqrt(1 + theta) * eta)
            theta, eta = new / eta, new
        g = loss.grad(x + np.sqrt(eta) * s / np.linalg.norm(s), batch)
        previous, x = x, x - eta * g
        yield x


def adam(
    problem: Problem,
    x: Array,
    batches: Batches,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    coupled: float = 0.0,
    decoupled: float = 0.0,
    rho: float = 0.0,
    normalised: bool = False,
) -> Iterator[Array]:
    """Kingma and Ba 2015, Loshchilov and Hutter 2019, after USAM's (SAM's where `normalised`) perturbation."""
    loss = Loss(problem)
    m, v = np.zeros_like(x), np.zeros_like(x)
    for n, batch in enumerate(batches, start=1):
        s = loss.grad(x, batch)
        g = loss.grad(x + rho * (s / np.linalg.norm(s) if normalised else s), batch) + coupled * x
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        x = x * (1 - lr * decoupled) - lr * (m / (1 - beta1**n)) / (np.sqrt(v / (1 - beta2**n)) + eps)
        yield x


def sgdw(
    problem: Problem, x: Array, batches: Batches, lr: float, momentum: float, decay: float, rho: float = 0.0
) -> Iterator[Array]:
    """Loshchilov and Hutter 2019, after USAM's perturbation."""
    loss = Loss(problem)
    v = np.zeros_like(x)
    for batch in batches:
        v = momentum * v + loss.grad(x + rho * loss.grad(x, batch), batch)
        x = x * (1 - lr * decay) - lr * v
        yield x


def midpoints(problem: Problem) -> tuple[float, float]:
    """Radius and step size of `oikonomou2025`, stochastic: half of what its guarantee allows."""
    most, mu = problem.L_max, problem.mu
    rho = 0.5 * mu / (most * (mu + 2 * most))
    return rho, 0.5 * (mu - most * rho * (mu + 2 * most)) / (2 * most**2 * (2 * most**2 * rho**2 + 1))
