"""How often a stack of every covered method breaks an inequality of the paper."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex import bounds
from polysweep.trainer.convex.problem import Problem
from polysweep.trainer.convex.task import Convex
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.stack.stack import Stack


def violations(problem: Problem, share: float, cap: float, batch: int, seed: int, steps: int = 40) -> dict[str, Any]:
    """By inequality how often a stack of every covered method breaks it, radius `share` of the largest.

    Step sizes and descents at every step; after the last one theorems 3.1 and 3.2, which hold for every single run.
    """
    full = batch == problem.n
    smooth = problem.L if full else problem.L_max
    rho = min(share / smooth, 1 / smooth)
    rules: list[dict[str, Any]] = [{"scheduler": "polyak", "gamma_b": cap}]
    if full or problem.is_interpolated:
        rules.append({"scheduler": "polyak-deterministic"})
        rules.append({"scheduler": "polyak-deterministic", "rho_schedule": "inverse_sqrt", "rho": 3 * rho})
    if rho * smooth < 0.999:
        rules.append({"scheduler": "constant", "lr": min(cap, bounds.least_step(smooth, rho))})
    options = {"record_every": steps, "check": True}
    with mock.patch.multiple("polysweep.trainer.convex.coverage", problem_of=lambda *_: problem), \
         mock.patch.multiple("polysweep.trainer.convex.task", problem_of=lambda *_: problem):  # fmt: skip
        base = {"task": "ridge", "model": "linear", "optimizer": "usam", "rho": rho, "batch_size": batch, "epochs": 1}
        configs = [TrialConfig.parse({**base, "seed": seed, "task_options": options, **rule}) for rule in rules]
        task = Convex("ridge", configs[0].task_options)
        stack = Stack(configs, task)
        start = (stack.theta - task.x_star).square().sum(1).tolist()
        result = EpochRunner(stack).run(1, 0, lambda: False)
        assert result is not None
        found = stack.measure(steps)
    broken = {
        "gamma": found["violations/gamma"].tolist(),
        "cap": [float(result.sums.gamma_max[0] > cap)],
        "descent": found["violations/descent"].tolist(),
        "lemmas": found["violations/lemmas"].tolist(),
        "rate": [],
        "cesaro": [],
    }
    if full and rho * smooth < 0.999:
        alpha = bounds.alpha(smooth, rho, bounds.ceiling(smooth, math.inf))
        grain = 1e-12 + (100 * problem.grain) ** 2
        left, averaged = found["distance"][1].item(), found["suboptimality/cesaro"][1].item()
        broken["rate"] = [float(left > bounds.rate(problem.mu, alpha) ** steps * start[1] * (1 + 1e-9) + grain)]
        broken["cesaro"] = [float(averaged > bounds.cesaro(alpha, math.inf, 0.0, start[1], steps) * (1 + 1e-9) + grain)]
    return broken
