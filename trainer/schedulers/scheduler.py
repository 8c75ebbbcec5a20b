"""What a scheduler is, and the schedulers of a stack's rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polysweep.trainer.components.plugins import component
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.passes import LossAndGrad

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


class StepContext(NamedTuple):
    """What a scheduler may read: loss and gradient at e, e - x (K, P), t = 0, 1, ..., (), and the rows x (K, P)."""

    at_e: LossAndGrad
    perturbation: Tensor
    step: Tensor
    x: Tensor

    @property
    def loss(self) -> Tensor:
        """f(e), (K,)."""
        return self.at_e.loss

    @property
    def grad(self) -> Tensor:
        """grad f(e), (K, P)."""
        return self.at_e.grad

    @property
    def square(self) -> Tensor:
        """||grad f(e)||^2, (K,)."""
        return self.at_e.square

    @property
    def gap(self) -> Tensor | None:
        """f(e) - f* without cancellation, (K,); None where f* is not known."""
        return self.at_e.gap


class Scheduler(ABC):
    """A rule for the step sizes of K rows. Subclass it and write `gamma`; nothing in a step may ask for a value.

    `configs` has K entries, all of this scheduler. Where a stack mixes schedulers, each is asked for all K rows and the
    rows that are another's are dropped.
    """

    steps_per_epoch: int = 1
    """Set before the first epoch: step t is in epoch t // steps_per_epoch = 0, 1, ..."""
    parameters: int = 0
    """P. Set before `init`."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        self.configs = configs
        self.factory_kwargs: dict[str, Any] = {"device": device, "dtype": dtype}

    def init(self) -> State:
        """The rule's state before step 0: by name, tensors (K, ...) that a trial's checkpoint keeps."""
        return {}

    def start_epoch(self, epoch: int) -> None:  # noqa: B027
        """Called before epoch t = 0, 1, ...; writes into tensors in place, as a step may be a captured graph."""

    @abstractmethod
    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, State]:
        """The step sizes, and the next state."""

    def radius(self, step: Tensor, rho: Tensor) -> Tensor:  # noqa: ARG002
        """rho_t (K,) of step t () from the configs' radius (K,): for a scheduler that fixes the radius itself."""
        return rho

    def direction(self, d: Tensor, state: State) -> Tensor:  # noqa: ARG002
        """What is followed instead of the optimizer's d (K, P): for a scheduler that averages it.

        `state` is the one that `gamma` has returned in this step.
        """
        return d


class StepSizes:
    """The schedulers of a stack's rows: every row goes by its own, whatever the rules of its neighbours."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        device: torch.device,
        dtype: torch.dtype,
        steps_per_epoch: int = 1,
        parameters: int = 0,
    ) -> None:
        self._rules: dict[str, Scheduler] = {}
        self._rows: dict[str, Tensor] = {}  # by rule, which rows are its own: (K,) bool
        for name in dict.fromkeys(config.scheduler for config in configs):
            is_own = [config.scheduler == name for config in configs]
            stand_in = configs[is_own.index(True)]  # for rows of another rule: computed and dropped
            members = [config if own else stand_in for config, own in zip(configs, is_own, strict=True)]
            self._rules[name] = component("scheduler", name).load()(members, device, dtype)
            self._rules[name].steps_per_epoch = steps_per_epoch
            self._rules[name].parameters = parameters
            self._rows[name] = torch.tensor(is_own, device=device)
        self._of_radius = [name for name, rule in self._rules.items() if _writes(rule, "radius")]
        self.of_direction = [name for name, rule in self._rules.items() if _writes(rule, "direction")]
        """Those of the rules that choose the direction."""

    def init(self) -> dict[str, Tensor]:
        """The states of all rules before step 0, by `scheduler/name`."""
        return {key: value for name, rule in self._rules.items() for key, value in _prefixed(name, rule.init()).items()}

    def start_epoch(self, epoch: int) -> None:
        """Tell the rules that epoch t = 0, 1, ... begins."""
        for rule in self._rules.values():
            rule.start_epoch(epoch)

    def gamma(self, context: StepContext, state: State) -> tuple[Gamma, dict[str, Tensor]]:
        """Every row's step size by its own rule, and the next states of all rules."""
        gammas: dict[str, Gamma] = {}
        next_state: dict[str, Tensor] = {}
        for name, rule in self._rules.items():
            gammas[name], new = rule.gamma(context, _of(name, state))
            next_state |= _prefixed(name, new)
        first, *others = gammas
        chosen = gammas[first]
        for name in others:
            chosen = Gamma(*(torch.where(self._rows[name], a, b) for a, b in zip(gammas[name], chosen, strict=True)))
        return chosen, next_state

    def radius(self, step: Tensor, rho: Tensor) -> Tensor:
        """Every row's radius rho_t (K,): `rho` unless its scheduler fixes it."""
        for name in self._of_radius:
            rho = torch.where(self._rows[name], self._rules[name].radius(step, rho), rho)
        return rho

    def direction(self, d: Tensor, state: State) -> Tensor:
        """What every row follows, (K, P): d unless its scheduler chooses; `state` is the next one of all rules."""
        for name in self.of_direction:
            d = torch.where(self._rows[name].unsqueeze(1), self._rules[name].direction(d, _of(name, state)), d)
        return d


def _writes(rule: Scheduler, method: str) -> bool:
    """Whether a rule has its own `method`; a user's need not be a subclass."""
    inherited = getattr(Scheduler, method)
    return getattr(type(rule), method, inherited) is not inherited


def _prefixed(name: str, state: State) -> dict[str, Tensor]:
    return {f"{name}/{key}": value for key, value in state.items()}


def _of(name: str, state: State) -> dict[str, Tensor]:
    """The part of the rule `name`, without its prefix."""
    prefix = f"{name}/"
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
