"""Published USAM baselines with a guarantee: their step sizes and radii."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.coverage import problem_for
from polysweep.trainer.convex.guarantees import decreasing_step, radius_and_step
from polysweep.trainer.schedulers.scheduler import Gamma, Scheduler, State, StepContext


class Decreasing:
    """gamma_t = min{(8 t + 4) / (3 mu (t + 1)^2), 1 / (2 L_max)}: `andriushchenko2022`, stochastic, of some rows."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        problems = [problem_for(config) for config in configs]
        self._own = torch.tensor([_decreases(config) for config in configs], device=device)
        self._mu = torch.tensor([problem.mu or 1.0 for problem in problems], **place)  # 1: of rows that are another's
        self._most = torch.tensor([problem.L_max for problem in problems], **place)

    @classmethod
    def of(cls, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> Decreasing | None:
        """None where no row has it."""
        return cls(configs, device, dtype) if any(map(_decreases, configs)) else None

    def step_size(self, step: Tensor, other: Tensor) -> Tensor:
        """gamma_t of step t, (), and `other` (K,) of the rows that have another rule."""
        found = torch.minimum(decreasing_step(step.to(self._mu.dtype), self._mu), 1 / (2 * self._most))
        return torch.where(self._own, found, other)

    def radius(self, step: Tensor, other: Tensor) -> Tensor:
        """rho_t = sqrt(gamma_t / L_max) of step t, (), and `other` (K,) of the rows that have another rule."""
        return torch.where(self._own, (self.step_size(step, other) / self._most).sqrt(), other)


class Published(Scheduler):
    """A USAM baseline with a guarantee: step size and radius of `guarantees`, from the task's constants."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._lr = torch.tensor([0.0 if _decreases(c) else _published(c)[1] for c in configs], **self.place)
        self._follows = Decreasing.of(configs, device, dtype)

    def gamma(self, seen: StepContext, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        value = self._lr if self._follows is None else self._follows.step_size(seen.step, self._lr)
        return Gamma.of(value), state


def published_radius(config: TrialConfig) -> float:
    """The constant radius that the config's scheduler fixes; 0 for one that changes from step to step."""
    return 0.0 if _decreases(config) else _published(config)[0]


def _published(config: TrialConfig) -> tuple[float, float]:
    setting = str(config.scheduler_options.get("setting", "deterministic"))
    return radius_and_step(config.scheduler, setting, problem_for(config))


def _decreases(config: TrialConfig) -> bool:
    return config.scheduler == "andriushchenko2022" and config.scheduler_options.get("setting") == "stochastic"
