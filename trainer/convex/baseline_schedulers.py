"""Published USAM baselines with a guarantee: their step sizes and radii."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.coverage import problem_for
from polysweep.trainer.convex.guarantees import decreasing_step, radius_and_step
from polysweep.trainer.schedulers.scheduler import Gamma, Scheduler, State, StepContext


class Published(Scheduler):
    r"""A USAM baseline with a guarantee: radius and step size of `guarantees`, from the task's constants.

    `andriushchenko2022`, stochastic, has decreasing ones:

        gamma_t = min{(8 t + 4) / (3 mu (t + 1)^2), 1 / (2 L_max)},   rho_t = sqrt(gamma_t / L_max)

    Source: the paper's "Verification of the theory", which cites them.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        constant = [(0.0, 0.0) if _decreases(config) else _published(config) for config in configs]
        self._rho, self._lr = (torch.tensor(values, **self.factory_kwargs) for values in zip(*constant, strict=True))
        self._has_decreasing = any(map(_decreases, configs))
        self._decreasing = torch.tensor([_decreases(config) for config in configs], device=device)
        problems = [problem_for(config) for config in configs]
        self._mu = torch.tensor([problem.mu or 1.0 for problem in problems], **self.factory_kwargs)  # 1: never used
        self._l_max = torch.tensor([problem.L_max for problem in problems], **self.factory_kwargs)

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        return Gamma.of(self._step_size(context.step)), state

    def radius(self, step: Tensor, rho: Tensor) -> Tensor:  # noqa: ARG002
        """See `Scheduler`."""
        if not self._has_decreasing:
            return self._rho
        return torch.where(self._decreasing, (self._step_size(step) / self._l_max).sqrt(), self._rho)

    def _step_size(self, step: Tensor) -> Tensor:
        """gamma_t of step t (), (K,)."""
        if not self._has_decreasing:
            return self._lr
        decreasing = torch.minimum(decreasing_step(step.to(self._mu.dtype), self._mu), 1 / (2 * self._l_max))
        return torch.where(self._decreasing, decreasing, self._lr)


def _published(config: TrialConfig) -> tuple[float, float]:
    setting = str(config.scheduler_options.get("setting", "deterministic"))
    return radius_and_step(config.scheduler, setting, problem_for(config))


def _decreases(config: TrialConfig) -> bool:
    return config.scheduler == "andriushchenko2022" and config.scheduler_options.get("setting") == "stochastic"
