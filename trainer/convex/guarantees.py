r"""Radius and step size of USAM baselines with guarantees, as the paper's "Verification of the theory" sets them.

Where a guarantee asks for an interval open on the right, the midpoint; for a closed one the largest value. Plain
numbers: analysis prints them too.
"""

from __future__ import annotations

from typing import Any

from polysweep.trainer.convex.problem import Problem


def radius_and_step(name: str, setting: str, problem: Problem) -> tuple[float, float]:
    r"""The constant radius and step size of a baseline.

    khanh2024:                         rho in [0, 1/L),    gamma in [0, 4/(9L))
    andriushchenko2022, deterministic: rho in [0, 1/L),    gamma in [0, 1/L)
    oikonomou2025, deterministic:      rho in [0, 1/(3L)), gamma in [0, (1 - 3 L rho) / (L (2 L^2 rho^2 + 1)))
    oikonomou2025, stochastic:         rho < mu / (M (mu + 2M)),
                                       gamma < (mu - M rho (mu + 2M)) / (2 M^2 (2 M^2 rho^2 + 1)),  M = L_max
    """
    smooth, mu = problem.L, problem.mu
    if setting == "stochastic":
        assert name == "oikonomou2025", "that of andriushchenko2022 changes from step to step: see `decreasing_step`"
        most = problem.L_max
        rho = mu / (most * (mu + 2 * most)) / 2
        return rho, (mu - most * rho * (mu + 2 * most)) / (2 * most**2 * (2 * most**2 * rho**2 + 1)) / 2
    if name == "khanh2024":
        return 1 / (2 * smooth), 2 / (9 * smooth)
    if name == "andriushchenko2022":
        return 1 / (2 * smooth), 1 / (2 * smooth)
    rho = 1 / (6 * smooth)
    return rho, (1 - 3 * smooth * rho) / (smooth * (2 * smooth**2 * rho**2 + 1)) / 2


def decreasing_step(step: Any, mu: Any) -> Any:
    """(8 t + 4) / (3 mu (t + 1)^2) of step t = 0, 1, ...

    What `andriushchenko2022`, stochastic, takes where it is below 1 / (2 L_max). Its radius is sqrt(gamma_t / L_max).
    """
    return (8 * step + 4) / (3 * mu * (step + 1) ** 2)
