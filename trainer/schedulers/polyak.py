"""The paper's Polyak step sizes: the Stochastic Polyak Scheduler, and the deterministic one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.schedulers.scheduler import Gamma, Scheduler, State, StepContext


class Polyak(Scheduler):
    """The Stochastic Polyak Scheduler with cap `gamma_b` and `lower_bound`, see `polyak`."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._lower_bound = torch.tensor([c.lower_bound for c in configs], **self.factory_kwargs)
        self._cap = torch.tensor([c.gamma_b for c in configs], **self.factory_kwargs)

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        return polyak(
            context.loss, self._lower_bound, context.grad, context.perturbation, self._cap, context.square
        ), state


class DeterministicPolyak(Scheduler):
    r"""The paper's Polyak Scheduler: gamma = [f(e) - f* - <grad f(e), e - x>]_+ / ||grad f(e)||^2, without a cap.

    For full batches, and for mini-batches that share their minimiser (corollary Interpolation). 0 where the gradient is
    zero, which is at a minimiser. Source: eq. (Polyak Scheduler) of section 2.2.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._zero = torch.zeros(len(configs), **self.factory_kwargs)
        self._never = torch.zeros(len(configs), dtype=torch.bool, device=device)

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        assert context.gap is not None, "the config sees to it"
        excess = context.gap - torch.linalg.vecdot(context.grad, context.perturbation)
        zeroed = excess <= 0
        return Gamma(torch.where(zeroed, self._zero, excess / context.square), self._never, zeroed), state


def polyak(
    loss: Tensor,
    lower_bound: Tensor,
    grad: Tensor,
    perturbation: Tensor,
    cap: Tensor,
    square: Tensor | None = None,
) -> Gamma:
    r"""The Stochastic Polyak Scheduler for USAM and SAM.

        gamma = min{ [f(e) - l - <grad f(e), e - x>]_+ / ||grad f(e)||^2, gamma_b }

    `loss` f(e), `lower_bound` l and `cap` gamma_b are (K,); `grad` at e and `perturbation` e - x are (K, P); `square`
    (K,) is ||grad f(e)||^2 if it is known. With e = x it is SPS_max of Loizou et al. 2021. gamma is 0 where the
    numerator is not positive (`zeroed`), and the cap where the gradient is zero but the numerator is positive; it is
    never NaN for finite input.

    Source: eq. (Stochastic Polyak Scheduler) of sections 2.3 and 4.3 and Algorithm 1 of the paper.
    """
    excess = loss - lower_bound - torch.linalg.vecdot(grad, perturbation)
    gamma = excess / (torch.linalg.vecdot(grad, grad) if square is None else square)
    zeroed = excess <= 0
    capped = ~zeroed & (gamma >= cap)
    gamma = torch.where(zeroed, torch.zeros_like(gamma), torch.minimum(gamma, cap))
    return Gamma(gamma, capped, zeroed)
