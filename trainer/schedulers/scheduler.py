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


class StepContext:
    """What a step shows at e: `loss` f(e) (K,), `grad` (K, P), `ascent` e - x (K, P); `step` is t = 0, 1, ..., ().

    `square` (K,) is ||grad||^2; `gap` (K,) is f(e) - f* without cancellation, None where nobody knows it.
    """

    def __init__(self, e: LossAndGrad, ascent: Tensor, step: Tensor) -> None:
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
    def gamma(self, seen: StepContext, state: State) -> tuple[Gamma, State]:
        """The step sizes, and what is remembered next."""


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

    def gamma(self, seen: StepContext, state: State) -> tuple[Gamma, dict[str, Tensor]]:
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
