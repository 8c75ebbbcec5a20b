r"""The paper's inequalities as functions of plain numbers or tensors. Imports nothing: trainer and analysis use them.

`smooth` is L with full batches and L_max with mini-batches, `rho` the radius, `cap` gamma_b (infinite in the
deterministic case), `start` ||x^0 - x*||^2, `sigma2` the variance measure of eq. (variance).
"""

from __future__ import annotations

from typing import Any


def least_step(smooth: Any, rho: Any) -> Any:
    """(1 - L rho) / (2 L (1 + L rho)): no uncapped Polyak step size is smaller. Proposition 2.1, section 2.3."""
    return (1 - smooth * rho) / (2 * smooth * (1 + smooth * rho))


def alpha(smooth: Any, rho: Any, ceiling: Any) -> Any:
    """(1 - L rho)^2 min{1 / (2 L), gamma_b}, with `ceiling` the minimum. Theorems 3.5 and 3.8."""
    return (1 - smooth * rho) ** 2 * ceiling


def ceiling(smooth: float, cap: float) -> float:
    """min{1 / (2 L), gamma_b}."""
    return min(1 / (2 * smooth), cap)


def growth(alpha_: Any, excess: Any, cap: Any, noise: Any) -> Any:
    r"""What ||x^{t+1} - x*||^2 - ||x^t - x*||^2 is at most: -alpha (f_S(x^t) - l) + 2 gamma_b (f_S(x*) - l).

    `excess` is f_S(x^t) - l, `noise` f_S(x*) - l, and `cap` has to be finite where the noise is not 0. With full
    batches and l = f* it is the descent property, Proposition 2.2; else eq. (stoch-descent) of its proof, which holds
    for every mini-batch and not in expectation alone.
    """
    return -alpha_ * excess + 2 * cap * noise


def lemmas(
    smooth: Any, rho: Any, at_x: Any, at_e: Any, product: Any, rise: Any, larger: Any = max
) -> tuple[tuple[Any, Any], ...]:
    r"""The inequalities of lemmas Convex, Smooth, and Convex and smooth, each as what is at most what.

    `at_x` is ||grad f(x)||^2, `at_e` ||grad f(e)||^2, `product` <grad f(e), grad f(x)>, `rise` f(e) - f(x), for
    e = x + rho grad f(x) and any rho >= 0; `larger` gives the larger of two. Source: "Auxiliary lemmas for the
    convergence analysis" in the appendix.
    """
    shrunk = larger(1 - smooth * rho, 0)
    return (
        (at_x, product),  # eq. (lem-convex-1)
        (product, at_e),  # eq. (lem-main-1)
        (rise, rho * product),  # eq. (lem-convex-2)
        (product, (1 + smooth * rho) * at_x),  # eq. (lem-smooth-1)
        (shrunk**2 * at_x, at_e),  # eq. (lem-smooth-3)
        (rho * product, rise + smooth * rho**2 / 2 * at_x),  # eq. (lem-smooth-2)
        (at_e, (1 + smooth * rho) ** 2 * at_x),  # eq. (lem-smooth-3)
    )


def properties(smooth: Any, mu: Any, excess: Any, at_x: Any, distance: Any) -> tuple[tuple[Any, Any], ...]:
    """What strong convexity and smoothness say of one point, each as what is at most what.

    `excess` is f(x) - f*, `at_x` ||grad f(x)||^2, `distance` ||x - x*||^2. Eqs. (st-convex-qg), (st-convex-eb),
    (smooth-qg), (smooth-eb); the error bounds are squared.
    """
    return (
        (mu / 2 * distance, excess),
        (2 * mu * excess, at_x),
        (mu**2 * distance, at_x),
        (at_x, 2 * smooth * excess),
        (excess, smooth / 2 * distance),
        (at_x, smooth**2 * distance),
    )


def rate(mu: float, alpha_: float) -> float:
    """1 - mu alpha / 2: the factor of ||x^t - x*||^2 in a step. Theorems 3.1 and 3.5 and both corollaries of 3.5."""
    return 1 - mu * alpha_ / 2


def neighbourhood(mu: float, alpha_: float, cap: float, sigma2: float) -> float:
    """2 (2 gamma_b - alpha) sigma^2 / (mu alpha): what stays of E||x^t - x*||^2. Theorem 3.5."""
    return 2 * (2 * cap - alpha_) / (mu * alpha_) * sigma2 if sigma2 else 0.0


def cesaro(alpha_: float, cap: float, sigma2: float, start: float, steps: Any) -> Any:
    """||x^0 - x*||^2 / (alpha T) + (2 gamma_b - alpha) sigma^2 / alpha: of f(mean of x^t) - f*. Theorems 3.2, 3.8."""
    stays = (2 * cap - alpha_) / alpha_ * sigma2 if sigma2 else 0.0
    return start / (alpha_ * steps) + stays
