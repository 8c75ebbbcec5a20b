"""Step sizes of a stack: constant, cosine, the paper's Stochastic Polyak Scheduler, and the user's own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.config import TrialConfig
from trainer.coverage import problem_for
from trainer.passes import Pass
from trainer.plugins import component
from trainer.published import decreasing_step, radius_and_step

State = Mapping[str, Tensor]


class Gamma(NamedTuple):
    """Step sizes of one step: `value` (K,); `capped` and `zeroed` (K,) bool: held at the cap, or at the safeguard."""

    value: Tensor
    capped: Tensor
    zeroed: Tensor

    @classmethod
    def of(cls, value: Tensor) -> Gamma:
        """Step sizes that know neither cap nor safeguard."""
        never = torch.zeros_like(value, dtype=torch.bool)
        return cls(value, never, never)


class Seen:
    """What a step shows at e: `loss` f(e) (K,), `grad` (K, P), `ascent` e - x (K, P); `step` is t = 0, 1, ..., ().

    `square` (K,) is ||grad||^2; `gap` (K,) is f(e) - f* without cancellation, None where nobody knows it.
    """

    def __init__(self, e: Pass, ascent: Tensor, step: Tensor) -> None:
        self._e = e
        self.grad, self.ascent, self.step = e.grad, ascent, step

    @property
    def loss(self) -> Tensor:
        """f(e), (K,)."""
        return self._e.loss

    @property
    def square(self) -> Tensor:
        """||grad f(e)||^2, (K,)."""
        return self._e.square

    @property
    def gap(self) -> Tensor | None:
        """f(e) - f*, (K,)."""
        return self._e.gap


class Scheduler(ABC):
    """A rule for the step sizes of K rows. Subclass it and write `gamma`; nothing in a step may ask for a value.

    `configs` has K entries, all of this scheduler. Where a stack mixes schedulers, each is asked for all K rows and the
    rows that are another's are dropped.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        self.configs = configs
        self.place: dict[str, Any] = {"device": device, "dtype": dtype}

    def initial(self) -> State:
        """What the rule remembers from step to step, by name, each tensor (K, ...): kept in every row's checkpoint."""
        return {}

    def start_epoch(self, epoch: int) -> None:  # noqa: B027
        """Called before epoch t = 0, 1, ...; writes into tensors in place, as a step may be a captured graph."""

    @abstractmethod
    def gamma(self, seen: Seen, state: State) -> tuple[Gamma, State]:
        """The step sizes, and what is remembered next."""


class Constant(Scheduler):
    """gamma_t = lr."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._gamma = Gamma.of(torch.tensor([c.lr for c in configs], **self.place))

    def gamma(self, seen: Seen, state: State) -> tuple[Gamma, State]:  # noqa: ARG002
        """See `Scheduler`."""
        return self._gamma, state


class Cosine(Scheduler):
    """Cosine annealing by epoch, see `cosine`."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._now = torch.zeros(len(configs), **self.place)

    def start_epoch(self, epoch: int) -> None:
        """See `Scheduler`."""
        values = [cosine(c.lr or 0.0, c.lr_min or 0.0, epoch, c.epochs) for c in self.configs]
        self._now.copy_(torch.tensor(values, **self.place))

    def gamma(self, seen: Seen, state: State) -> tuple[Gamma, State]:  # noqa: ARG002
        """See `Scheduler`."""
        return Gamma.of(self._now), state


class Polyak(Scheduler):
    """The Stochastic Polyak Scheduler with cap `gamma_b` and `lower_bound`, see `polyak`."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._lower_bound = torch.tensor([c.lower_bound for c in configs], **self.place)
        self._cap = torch.tensor([c.gamma_b for c in configs], **self.place)

    def gamma(self, seen: Seen, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        return polyak(seen.loss, self._lower_bound, seen.grad, seen.ascent, self._cap, seen.square), state


class DeterministicPolyak(Scheduler):
    r"""The paper's Polyak Scheduler: gamma = [f(e) - f* - <grad f(e), e - x>]_+ / ||grad f(e)||^2, without a cap.

    For full batches, and for mini-batches that share their minimiser (corollary Interpolation). 0 where the gradient is
    zero, which is at a minimiser. Source: eq. (Polyak Scheduler) of section 2.2.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._zero = torch.zeros(len(configs), **self.place)
        self._never = torch.zeros(len(configs), dtype=torch.bool, device=device)

    def gamma(self, seen: Seen, state: State) -> tuple[Gamma, State]:
        """See `Scheduler`."""
        assert seen.gap is not None, "the config sees to it"
        excess = seen.gap - torch.linalg.vecdot(seen.grad, seen.ascent)
        zeroed = excess <= 0
        return Gamma(torch.where(zeroed, self._zero, excess / seen.square), self._never, zeroed), state


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
    """A USAM baseline with a guarantee: step size and radius of `trainer.published`, from the task's constants."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._lr = torch.tensor([0.0 if _decreases(c) else _published(c)[1] for c in configs], **self.place)
        self._follows = Decreasing.of(configs, device, dtype)

    def gamma(self, seen: Seen, state: State) -> tuple[Gamma, State]:
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


def polyak(
    loss: Tensor,
    lower_bound: Tensor,
    grad: Tensor,
    ascent: Tensor,
    cap: Tensor,
    square: Tensor | None = None,
) -> Gamma:
    r"""The Stochastic Polyak Scheduler for USAM and SAM.

        gamma = min{ [f(e) - l - <grad f(e), e - x>]_+ / ||grad f(e)||^2, gamma_b }

    `loss` f(e), `lower_bound` l and `cap` gamma_b are (K,); `grad` at e and `ascent` e - x are (K, P); `square` (K,) is
    ||grad f(e)||^2 where it is known. With e = x it
    is SPS_max of Loizou et al. 2021. gamma is 0 where the numerator is not positive (`zeroed`), and the cap where the
    gradient is zero but the numerator is positive; it is never NaN for finite input.

    Source: eq. (Stochastic Polyak Scheduler) of sections 2.3 and 4.3 and Algorithm 1 of the paper.
    """
    excess = loss - lower_bound - torch.linalg.vecdot(grad, ascent)
    gamma = excess / (torch.linalg.vecdot(grad, grad) if square is None else square)
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
    """The schedulers of a stack's rows: a row-wise selection, so that a row's bits do not depend on its neighbours."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        self._rules: dict[str, tuple[Scheduler, Tensor]] = {}
        for name in dict.fromkeys(config.scheduler for config in configs):
            own = [config.scheduler == name for config in configs]
            stand_in = configs[own.index(True)]  # for the rows that are another's: computed and dropped
            members = [config if mine else stand_in for config, mine in zip(configs, own, strict=True)]
            rule: Scheduler = component("scheduler", name).load()(members, device, dtype)
            self._rules[name] = (rule, torch.tensor(own, device=device))

    def initial(self) -> dict[str, Tensor]:
        """What the rules remember, by `scheduler/name`."""
        return {
            f"{name}/{key}": value for name, (rule, _) in self._rules.items() for key, value in rule.initial().items()
        }

    def start_epoch(self, epoch: int) -> None:
        """Tell the rules that epoch t = 0, 1, ... begins."""
        for rule, _ in self._rules.values():
            rule.start_epoch(epoch)

    def gamma(self, seen: Seen, state: State) -> tuple[Gamma, dict[str, Tensor]]:
        """Every row's step size by its own rule, and what the rules remember next."""
        if len(self._rules) == 1 and not state:
            ((name, (rule, _)),) = self._rules.items()
            gamma, new = rule.gamma(seen, {})
            return gamma, {f"{name}/{key}": value for key, value in new.items()}
        chosen: Gamma | None = None
        after: dict[str, Tensor] = {}
        for name, (rule, own) in self._rules.items():
            mine = {k.removeprefix(f"{name}/"): v for k, v in state.items() if k.startswith(f"{name}/")}
            gamma, new = rule.gamma(seen, mine)
            after |= {f"{name}/{key}": value for key, value in new.items()}
            if chosen is not None:
                gamma = Gamma(*(torch.where(own, a, b) for a, b in zip(gamma, chosen, strict=True)))
            chosen = gamma
        assert chosen is not None
        return chosen, after
