"""Step sizes of a stack: constant, cosine and the paper's Stochastic Polyak Scheduler, row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.config import TrialConfig


class Gamma(NamedTuple):
    """Step sizes of one step: `value` (K,); `capped` and `zeroed` (K,) bool: held at the cap, or at the safeguard."""

    value: Tensor
    capped: Tensor
    zeroed: Tensor


def polyak(loss: Tensor, lower_bound: Tensor, grad: Tensor, ascent: Tensor, cap: Tensor) -> Gamma:
    r"""The Stochastic Polyak Scheduler for USAM and SAM.

        gamma = min{ [f(e) - l - <grad f(e), e - x>]_+ / ||grad f(e)||^2, gamma_b }

    `loss` f(e), `lower_bound` l and `cap` gamma_b are (K,); `grad` at e and `ascent` e - x are (K, P). With e = x it
    is SPS_max of Loizou et al. 2021. gamma is 0 where the numerator is not positive (`zeroed`), and the cap where the
    gradient is zero but the numerator is positive; it is never NaN for finite input.

    Source: eq. (Stochastic Polyak Scheduler) of sections 2.3 and 4.3 and Algorithm 1 of the paper.
    """
    excess = loss - lower_bound - torch.linalg.vecdot(grad, ascent)
    gamma = excess / torch.linalg.vecdot(grad, grad)
    zeroed = excess <= 0
    capped = ~zeroed & (gamma >= cap)
    gamma = torch.where(zeroed, torch.zeros_like(gamma), torch.minimum(gamma, cap))
    return Gamma(gamma, capped, zeroed)


def cosine(lr: float, lr_min: float, epoch: int, epochs: int) -> float:
    """Cosine annealing: lr_min + (lr - lr_min) (1 + cos(pi t / T)) / 2 for epoch t = 0 .. T - 1.

    The closed form of the paper's recursion (eq. Cosine Annealing), equal to it to rounding; `lr_min` itself would be
    the value of epoch T, which is never trained.
    """
    return lr_min + (lr - lr_min) * (1 + math.cos(math.pi * epoch / epochs)) / 2


class StepSizes:
    """The schedulers of a stack's rows. Mixed rows are a row-wise selection."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        self._configs = configs
        self._place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._adaptive = torch.tensor([c.scheduler == "polyak" for c in configs], device=device)
        self._any_adaptive = any(c.scheduler == "polyak" for c in configs)
        self._lower_bound = torch.tensor([c.lower_bound or 0.0 for c in configs], **self._place)
        self._cap = torch.tensor([c.gamma_b or math.inf for c in configs], **self._place)
        self._fixed = torch.zeros(len(configs), **self._place)
        self._never = torch.zeros(len(configs), dtype=torch.bool, device=device)

    def start_epoch(self, epoch: int) -> None:
        """Set the fixed step sizes of epoch t = 0, 1, ..."""
        self._fixed = torch.tensor([_fixed(config, epoch) for config in self._configs], **self._place)

    def __call__(self, loss: Tensor, grad: Tensor, ascent: Tensor) -> Gamma:
        """Step sizes at e: `loss` (K,), `grad` (K, P), `ascent` e - x (K, P)."""
        if not self._any_adaptive:
            return Gamma(self._fixed, self._never, self._never)
        rule = polyak(loss, self._lower_bound, grad, ascent, self._cap)
        return Gamma(
            torch.where(self._adaptive, rule.value, self._fixed),
            self._adaptive & rule.capped,
            self._adaptive & rule.zeroed,
        )


def _fixed(config: TrialConfig, epoch: int) -> float:
    if config.scheduler == "cosine":
        assert config.lr is not None and config.lr_min is not None
        return cosine(config.lr, config.lr_min, epoch, config.epochs)
    return config.lr or 0.0
