r"""The SAM family: ASAM, GSAM, F-SAM and LookSAM, each after the publication that it names.

Notation as in `trainer.optimizers.optimizer`, and g = grad f(x), h = grad f(e); products by coordinate. rho_t is SAM's
with its `rho_schedule`. Momentum and (coupled) weight decay are those of the descent step: they enter neither s nor d.
A direction of length 0 is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.optimizers.optimizer import Objective, State, StepResult, StepSize
from polysweep.trainer.optimizers.sam import SharpnessAware
from polysweep.trainer.passes import LossAndGrad


class Relative(SharpnessAware):
    """What the rules share: the radius."""

    def radius(self, t: Tensor) -> Tensor:
        """rho_t, (K, 1)."""
        return self.scheduled_radius(t, self._radius(t)).unsqueeze(1)


class ASAM(Relative):
    r"""ASAM: SAM in units of the weights.

        s = rho_t T^2 g / ||T g||,     T = |x| + eta
        d = h

    for every coordinate. The authors' code has T = 1 for parameters without `weight` in their name, such as biases,
    which is not in the publication. Source: algorithm 1 of Kwon et al. 2021 (arXiv 2102.11600), with p = 2.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.eta = self.option("eta")

    def update(self, f: Objective, step_size: StepSize, x: Tensor, state: State, t: Tensor) -> StepResult:
        """See the class: T is of x, which `perturbation` does not see."""
        at_x = f(x)
        T = x.abs() + self.eta
        s = T * along(T * at_x.grad, self.radius(t))
        at_e = f(x + s)
        gamma = step_size(at_e, s, t)
        x, state = self.descend(x, at_e.grad, gamma, state)
        return StepResult(x, state, at_x, at_e, gamma)


class GSAM(Relative):
    r"""GSAM: SAM that also closes the gap between f(e) and f(x).

        s = rho_t g / ||g||
        d = h - alpha (g - <g, h> / ||h||^2 h)

    What is in brackets is the part of g that is orthogonal to h. The publication ties rho_t to the learning rate; here
    it is `rho_schedule`'s. Its alpha is tuned; the authors' example has 0.2, the package pytorch-optimizer 0.4 as here.
    Source: algorithm 1 of Zhuang et al. 2022 (arXiv 2203.08065).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.alpha = self.option("alpha")

    def update(self, f: Objective, step_size: StepSize, x: Tensor, state: State, t: Tensor) -> StepResult:
        """See the class: d is of g and h, of which `direction` sees h alone."""
        at_x = f(x)
        s = along(at_x.grad, self.radius(t))
        at_e = f(x + s)
        gamma = step_size(at_e, s, t)
        d = at_e.grad - self.alpha * orthogonal(at_x.grad, at_e)
        x, state = self.descend(x, d, gamma, state)
        return StepResult(x, state, at_x, at_e, gamma)


class FriendlySAM(Relative):
    r"""F-SAM: SAM along what a mini-batch's gradient has that the average has not.

        m_t = beta m_{t-1} + (1 - beta) g                  m_{-1} = 0
        s   = rho_t (g - sigma m_t) / ||g - sigma m_t||
        d   = h

    beta is the publication's lambda. The authors' code takes off m_{t-1}, which for sigma = 1 is the same direction,
    and starts at m_0 = g. Source: algorithm 1 of Li et al. 2024 (arXiv 2403.12350).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.sigma, self.beta = self.option("sigma"), self.option("beta")

    def init(self, theta: Tensor) -> State:
        """m before step 0, (K, P)."""
        return {**super().init(theta), "m": torch.zeros_like(theta)}

    def perturbation(self, at_x: LossAndGrad, state: State, t: Tensor) -> tuple[Tensor, State]:
        """s."""
        m = self.beta * state["m"] + (1 - self.beta) * at_x.grad
        return along(at_x.grad - self.sigma * m, self.radius(t)), {**state, "m": m}


class LookSAM(Relative):
    r"""LookSAM: SAM in every k-th step, and in those between it what is kept of the last of them.

        s = rho_t g / ||g||,   d = h,   v = h - <g, h> / ||g||^2 g             if k divides t
        s = 0,                 d = g + alpha ||g|| / ||v|| v                   else

    v is the part of h that is orthogonal to g. e = x in the steps between, and no second pass is made for them where t
    may be asked for (on a CPU) and k divides it for no row. Elsewhere, in a captured graph, it is made and dropped,
    which takes as long as SAM and gives the same numbers; the pass at e therefore never updates running statistics.
    Norms and products are those of all parameters, as published; the package pytorch-optimizer has one per tensor.

    k is the option `every`; the state has v. Source: algorithm 1 of Liu et al. 2022 (arXiv 2203.02714).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        every: list[Any] = [config.optimizer_options["every"] for config in configs]
        self.every, self.alpha = torch.tensor(every, device=device).unsqueeze(1), self.option("alpha")

    def init(self, theta: Tensor) -> State:
        """v before step 0, (K, P)."""
        return {**super().init(theta), "v": torch.zeros_like(theta)}

    def update(self, f: Objective, step_size: StepSize, x: Tensor, state: State, t: Tensor) -> StepResult:
        """See the class."""
        at_x = f(x)
        looks = t % self.every == 0
        s = torch.where(looks, along(at_x.grad, self.radius(t)), 0.0)
        at_e = self._looked(f, x + s, at_x, looks)
        gamma = step_size(at_e, s, t)
        v = torch.where(looks, orthogonal(at_e.grad, at_x), state["v"])
        d = torch.where(looks, at_e.grad, at_x.grad + along(v, self.alpha * at_x.norm.unsqueeze(1)))
        x, state = self.descend(x, d, gamma, {**state, "v": v})
        return StepResult(x, state, at_x, at_e, gamma)

    def _looked(self, f: Objective, e: Tensor, at_x: LossAndGrad, looks: Tensor) -> LossAndGrad:
        """The pass at e of the rows that look, and that at x of the others."""
        if self.may_ask and not looks.any():
            return at_x
        at_e = f(e)
        loss = torch.where(looks.squeeze(1), at_e.loss, at_x.loss)
        logits = torch.where(looks.view(-1, *[1] * (at_e.logits.dim() - 1)), at_e.logits, at_x.logits)
        return LossAndGrad(loss, torch.where(looks, at_e.grad, at_x.grad), logits)


def along(v: Tensor, length: Tensor) -> Tensor:
    """length v / ||v|| of every row, 0 where v is 0: (K, P), (K, 1) -> (K, P)."""
    norm = torch.linalg.vecdot(v, v).sqrt().unsqueeze(1)
    return torch.where(norm > 0, length / norm, 0.0) * v


def orthogonal(v: Tensor, to: LossAndGrad) -> Tensor:
    """The part of v that is orthogonal to a gradient u, v - <u, v> / ||u||^2 u; v itself where u is 0: (K, P)."""
    share = torch.where(to.square > 0, torch.linalg.vecdot(to.grad, v) / to.square, 0.0)
    return v - share.unsqueeze(1) * to.grad
