"""ESAM: SAM that perturbs some of the coordinates, and follows some of the samples. Notation as in `family`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.draws import bernoulli, step_keys, threshold
from polysweep.trainer.optimizers.family import Relative, along
from polysweep.trainer.optimizers.optimizer import Objective, State, StepResult, StepSize
from polysweep.trainer.streams import stream_seed


class ESAM(Relative):
    r"""ESAM: stochastic weight perturbation and sharpness-sensitive data selection.

        s = rho_t / beta  M g / ||g||            M_i = 1 with probability beta, else 0
        B = the round(gamma b) of the mini-batch's b samples, at least one, whose losses grow most from x to e
        d = h = grad f_B(e)                      f_B: the mean loss of the samples in B

    M is drawn from the trial's seed and the step. f(e), which enters step sizes after Polyak's and `ascent_gain`, is
    f_B(e). Equal growth: the first in the mini-batch. One pass at e evaluates all samples and goes backward with the
    weights of B, as rows may differ in gamma: it costs what SAM's costs, and batch norm normalises by all b samples;
    the publication passes B alone once more, which saves half of a backward pass. The authors' code draws M for whole
    tensors instead of coordinates, divides by the norm of what is not masked, and takes the round down less one.

    Source: algorithm 1 of Du et al. 2022 (arXiv 2110.03141).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.beta, self.gamma = self.option("beta"), self.option("gamma")
        betas: list[Any] = [config.optimizer_options["beta"] for config in configs]
        self.limits = torch.tensor([threshold(1 - beta) for beta in betas], device=device)
        self.seeds = torch.tensor([stream_seed(config.seed, "esam") for config in configs], device=device)

    def update(self, f: Objective, step_size: StepSize, x: Tensor, state: State, t: Tensor) -> StepResult:
        """See the class."""
        at_x = f(x)
        mask = bernoulli(step_keys(self.seeds, t), self.limits, x.shape[1])
        s = torch.where(mask, along(at_x.grad, self.radius(t) / self.beta), 0.0)

        def weigh(losses: Tensor) -> Tensor:
            """1 / |B| for the samples in B, else 0."""
            growth = losses - at_x.by_sample
            rank = growth.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
            count = (self.gamma * growth.shape[1]).round().clamp(min=1)
            return torch.where(rank < count, 1 / count, 0.0)

        at_e = f(x + s, weigh)
        gamma = step_size(at_e, s, t)
        x, state = self.descend(x, at_e.grad, gamma, state)
        return StepResult(x, state, at_x, at_e, gamma)
