"""The paper's updates, transcribed in NumPy from its equations. Slow, legible, and independent of the trainer.

Sums are exact (`math.fsum`), so that what differs is the trainer's rounding alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Oracle = Callable[[Vector], tuple[float, Vector]]


def step_size(config: dict, epoch: int, f_e: float, g_e: Vector, e_minus_x: Vector) -> float:
    """gamma_t of the three schedulers."""
    if config["scheduler"] == "constant":
        return config["lr"]
    if config["scheduler"] == "cosine":  # the paper's recursion, started at gamma_0 = lr
        gamma, low, big_t = config["lr"], config["lr_min"], config["epochs"]
        for t in range(epoch):
            gamma = low + (gamma - low) * (1 + math.cos((t + 1) * math.pi / big_t)) / (
                1 + math.cos(t * math.pi / big_t)
            )
        return gamma
    numerator = f_e - config["lower_bound"] - math.fsum(g_e * e_minus_x)
    if numerator <= 0:
        return 0.0
    squared = math.fsum(g_e * g_e)
    return config["gamma_b"] if squared == 0 else min(numerator / squared, config["gamma_b"])


def update(x: Vector, oracle: Oracle, config: dict, epoch: int, t: int) -> Vector:
    """x^{t+1} of SGD, USAM or SAM; weight decay in the descent step only."""
    f_x, g_x = oracle(x)
    if config["optimizer"] == "sgd":
        e, f_e, g_e = x, f_x, g_x
    else:
        rho = (
            config["rho"]
            / {"constant": 1, "inverse_sqrt": math.sqrt(t + 1), "inverse": t + 1}[
                config.get("rho_schedule", "constant")
            ]
        )
        length = math.sqrt(math.fsum(g_x * g_x)) if config["optimizer"] == "sam" else 1.0
        e = x + (rho / length) * g_x if length else x
        f_e, g_e = oracle(e)
    gamma = step_size(config, epoch, f_e, g_e, e - x)
    return x - gamma * (g_e + config["weight_decay"] * x)
