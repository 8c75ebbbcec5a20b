r"""Step sizes after Polyak's: SPS_+, DecSPS and NGN, at a perturbed point as the paper has its own.

They are published for a step along g = grad f(x). Here, as in the paper's Stochastic Polyak Scheduler, f(x) - l is

    E = f(e) - l - <grad f(e), e - x>

and g is grad f(e), so that with e = x each is the published step size. It is 0, and counted as `zeroed`, if E is
not positive, and never NaN for finite input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.schedulers.scheduler import Gamma, Scheduler, State, StepContext


class PolyakFamily(Scheduler):
    """What they share: the lower bound l, and E."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._lower_bound = self.row([config.lower_bound for config in configs])

    def row(self, values: Sequence[object]) -> Tensor:
        """One number of every row, (K,)."""
        return torch.tensor(values, **self.factory_kwargs)

    def excess(self, context: StepContext) -> Tensor:
        """E, (K,)."""
        excess: Tensor = context.loss - self._lower_bound - torch.linalg.vecdot(context.grad, context.perturbation)
        return excess


class SPSPlus(PolyakFamily):
    """SPS_+: gamma = [f(x) - l]_+ / ||g||^2, without a cap.

    0, and counted as `zeroed`, if the gradient is 0: nothing would move. Near that it grows without a limit, and a row
    whose step overflows has diverged. Source: SPS_+ of Garrigos, Gower and Schaipp 2023 (arXiv 2307.14528), analysed by
    Gower et al. 2025 (arXiv 2504.01898), both with f_i(x*) for l.
    """

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        excess = self.excess(context)
        zeroed = (excess <= 0) | (context.square == 0)
        value = torch.where(zeroed, 0.0, excess / context.square)
        return Gamma(value, torch.zeros_like(zeroed), zeroed), state


class DecSPS(PolyakFamily):
    r"""DecSPS: Polyak's step size, divided by a growing c_t, of which c_t gamma_t never grows.

        gamma_t = min{[f(x) - l]_+ / ||g||^2, c_{t-1} gamma_{t-1}} / c_t,     c_t = c_0 sqrt(t + 1)

    with c_{-1} = c_0 and gamma_{-1} = `gamma_b`. The second one counts if the gradient is 0. `capped` are the steps so
    far in which it is c_0 gamma_b. A step that is `zeroed` leaves c_{t-1} gamma_{t-1} as it was: else every later one
    would be 0. The publication has none, as its f(x) - l is positive unless the gradient is 0.

    The state has c_{t-1} gamma_{t-1} as `reach`. Source: DecSPS of Orvieto, Lacoste-Julien and Loizou 2022 (arXiv
    2205.04583), with c_t = c_0 sqrt(t + 1) as in its theorems.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._c0 = self.row([config.scheduler_options["c0"] for config in configs])
        self._cap = self._c0 * self.row([config.gamma_b for config in configs])

    def init(self) -> State:
        """c_{-1} gamma_{-1}, (K,)."""
        return {"reach": self._cap}

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        c = self._c0 * (context.step.to(self._c0.dtype) + 1).sqrt()
        excess = self.excess(context)
        ratio = excess / context.square
        zeroed = excess <= 0
        capped = ~zeroed & (ratio >= self._cap) & (state["reach"] == self._cap)
        reach = torch.where(zeroed, state["reach"], torch.minimum(ratio, state["reach"]))
        return Gamma(torch.where(zeroed, 0.0, reach / c), capped, zeroed), {"reach": reach}


class NGN(PolyakFamily):
    r"""NGN, of a Gauss-Newton step for the root of f - l: between a constant step size and twice Polyak's.

        gamma = sigma / (1 + sigma ||g||^2 / (2 [f(x) - l]_+))

    sigma is the field `lr`, which it never exceeds, and which it is if the gradient is 0. Source: NGN of Orvieto and
    Xiao 2024 (arXiv 2407.04358), there with l = 0.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._sigma = self.row([config.lr for config in configs])

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        excess = self.excess(context)
        zeroed = excess <= 0
        value = self._sigma / (1 + self._sigma * context.square / (2 * excess))
        return Gamma(torch.where(zeroed, 0.0, value), torch.zeros_like(zeroed), zeroed), state
