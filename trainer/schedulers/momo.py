"""MoMo: a Polyak step size along an average of gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.schedulers.polyak_family import PolyakFamily
from polysweep.trainer.schedulers.scheduler import Gamma, State, StepContext


class MoMo(PolyakFamily):
    r"""MoMo, at a perturbed point e: the step goes to the minimum of an average of linear models of f, but not below l.

        f_t = beta f_{t-1} + (1 - beta) f(e)
        d_t = beta d_{t-1} + (1 - beta) grad f(e)
        p_t = beta p_{t-1} + (1 - beta) <grad f(e), e>
        gamma = min{[f_t + <d_t, x> - p_t - l]_+ / ||d_t||^2, lr},     x - gamma d_t

    with f_{-1} = f(e), d_{-1} = grad f(e) and p_{-1} = <grad f(e), e> of step 0. With e = x it is the publication's,
    with beta = 0 the Stochastic Polyak Scheduler with cap `lr`. gamma is 0 if the numerator is not positive (`zeroed`),
    and lr if d_t is 0 but the numerator positive; it is never NaN for finite input. It takes no momentum beside its
    own. Weight decay is coupled, x - gamma (d_t + weight_decay x), as for every step size here; the publication's is
    proximal.

    The state has f_t, d_t and p_t as `loss` (K,), `grad` (K, P) and `product` (K,). Source: algorithm 1 of Schaipp et
    al. 2024 (arXiv 2305.07583), without bias correction, as its authors' code by default.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._beta = self.row([config.scheduler_options["beta"] for config in configs])
        self._cap = self.row([config.lr for config in configs])

    def init(self) -> State:
        """Zeros, which step 0 does not read."""
        zero = torch.zeros_like(self._cap)
        grad = torch.zeros(len(self.configs), self.parameters, **self.factory_kwargs)
        return {"loss": zero, "grad": grad, "product": zero}

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        h, x = context.grad, context.x
        product = torch.linalg.vecdot(h, x + context.perturbation)
        f = self._average(context, state["loss"], context.loss)
        d = self._average(context, state["grad"], h)
        p = self._average(context, state["product"], product)
        excess = f + torch.linalg.vecdot(d, x) - p - self._lower_bound
        ratio = excess / torch.linalg.vecdot(d, d)
        zeroed = excess <= 0
        capped = ~zeroed & (ratio >= self._cap)
        value = torch.where(zeroed, 0.0, torch.minimum(ratio, self._cap))
        return Gamma(value, capped, zeroed), {"loss": f, "grad": d, "product": p}

    def direction(self, d: Tensor, state: State) -> Tensor:  # noqa: ARG002
        """d_t, (K, P)."""
        return state["grad"]

    def _average(self, context: StepContext, before: Tensor, now: Tensor) -> Tensor:
        """beta before + (1 - beta) now, (K, ...); in step 0 now."""
        beta = self._beta.view(-1, *[1] * (now.dim() - 1))
        return torch.where(context.step == 0, now, beta * before + (1 - beta) * now)
