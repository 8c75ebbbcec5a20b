r"""Adaptive sharpness-aware optimizers, each after the publication that it names; docs/theory.md says how it was read.

Notation as in `trainer.optimizers.optimizer`, and g = grad f(x), h = grad f(e). gamma is the scheduler's step size (the
publications' learning rate), all products and roots are by coordinate. Weight decay is decoupled: it is added to the
direction d. Where a publication starts a second moment at eps^2, so do these; none adds eps later.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.optimizers.optimizer import (
    Objective,
    Optimizer,
    State,
    StepResult,
    StepSize,
    along_gradient,
)
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.scheduler import Gamma


class Adaptive(Optimizer):
    """What the rules share: the radius `rho` (K, 1), and `move` in one kernel."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.rho = self.column([config.rho or 0.0 for config in configs])

    def move(self, x: Tensor, v: Tensor, gamma: Gamma) -> Tensor:
        """x - gamma v, (K, P), rounded once: other bits than those of two kernels."""
        return torch.addcmul(x, gamma.value.unsqueeze(1), v, value=-1)


class AdaSAM(Adaptive):
    r"""AdaSAM: SAM with momentum and AMSGrad's learning rate.

        s   = rho g / ||g||                            (0 where g = 0)
        m_t = beta1 m_{t-1} + (1 - beta1) h            m_{-1} = 0
        v_t = beta2 v_{t-1} + (1 - beta2) h^2          v_{-1} = eps^2
        w_t = max{w_{t-1}, v_t}                        w_{-1} = eps^2
        d   = m_t / sqrt(w_t)

    The state has w as `h`. Source: algorithm 1 of Sun et al. 2023 (arXiv 2303.00565).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.beta1, self.beta2, self.eps = self.option("beta1"), self.option("beta2"), self.option("eps")

    def init(self, theta: Tensor) -> State:
        """m, v and w before step 0, (K, P) each."""
        eps2 = (self.eps**2).expand_as(theta)
        return {"m": torch.zeros_like(theta), "v": eps2, "h": eps2}

    def perturbation(self, at_x: LossAndGrad, state: State, t: Tensor) -> tuple[Tensor, State]:  # noqa: ARG002
        """s."""
        return along_gradient(at_x, self.rho), state

    def direction(self, at_e: LossAndGrad, state: State) -> tuple[Tensor, State]:
        """d."""
        m = average(self.beta1, state["m"], at_e.grad)
        v = average(self.beta2, state["v"], at_e.grad.square())
        w = torch.maximum(state["h"], v)
        return m / w.sqrt(), {"m": m, "v": v, "h": w}


class LightSAM1(Adaptive):
    r"""LightSAM-I: AdaGrad-Norm in both steps.

        u_t = u_{t-1} + ||g||^2,   s = rho g / sqrt(u_t)       u_{-1} = eps^2
        v_t = v_{t-1} + ||h||^2,   d = h / sqrt(v_t)           v_{-1} = eps^2

    Source: algorithm 1 of Cheng et al. 2025 (arXiv 2505.24399).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.eps = self.option("eps")

    def init(self, theta: Tensor) -> State:  # noqa: ARG002
        """u and v before step 0, (K, 1) each."""
        return {"u": self.eps**2, "v": self.eps**2}

    def perturbation(self, at_x: LossAndGrad, state: State, t: Tensor) -> tuple[Tensor, State]:  # noqa: ARG002
        """s."""
        u = state["u"] + at_x.square.unsqueeze(1)
        return self.rho / u.sqrt() * at_x.grad, {**state, "u": u}

    def direction(self, at_e: LossAndGrad, state: State) -> tuple[Tensor, State]:
        """d."""
        v = state["v"] + at_e.square.unsqueeze(1)
        return at_e.grad / v.sqrt(), {**state, "v": v}


class LightSAM2(Adaptive):
    r"""LightSAM-II: AdaGrad in both steps.

        u_t = u_{t-1} + g^2,   s = rho g / sqrt(u_t)       u_{-1} = eps^2
        v_t = v_{t-1} + h^2,   d = h / sqrt(v_t)           v_{-1} = eps^2

    Source: algorithm 2 of Cheng et al. 2025 (arXiv 2505.24399).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.eps = self.option("eps")

    def init(self, theta: Tensor) -> State:
        """u and v before step 0, (K, P) each."""
        eps2 = (self.eps**2).expand_as(theta)
        return {"u": eps2, "v": eps2}

    def perturbation(self, at_x: LossAndGrad, state: State, t: Tensor) -> tuple[Tensor, State]:  # noqa: ARG002
        """s."""
        u = plus_square(state["u"], at_x.grad)
        return self.rho * (at_x.grad / u.sqrt()), {**state, "u": u}

    def direction(self, at_e: LossAndGrad, state: State) -> tuple[Tensor, State]:
        """d."""
        v = plus_square(state["v"], at_e.grad)
        return at_e.grad / v.sqrt(), {**state, "v": v}


class LightSAM3(Adaptive):
    r"""LightSAM-III: Adam, without bias correction, in both steps.

        r_t = beta1 r_{t-1} + (1 - beta1) g,   u_t = beta2 u_{t-1} + (1 - beta2) g^2,   s = rho r_t / sqrt(u_t)
        m_t = beta1 m_{t-1} + (1 - beta1) h,   v_t = beta2 v_{t-1} + (1 - beta2) h^2,   d = m_t / sqrt(v_t)

    with r_{-1} = m_{-1} = 0 and u_{-1} = v_{-1} = eps^2. Source: algorithm 3 of Cheng et al. 2025 (arXiv 2505.24399).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.beta1, self.beta2, self.eps = self.option("beta1"), self.option("beta2"), self.option("eps")

    def init(self, theta: Tensor) -> State:
        """r, u, m and v before step 0, (K, P) each."""
        eps2, zero = (self.eps**2).expand_as(theta), torch.zeros_like(theta)
        return {"r": zero, "u": eps2, "m": zero, "v": eps2}

    def perturbation(self, at_x: LossAndGrad, state: State, t: Tensor) -> tuple[Tensor, State]:  # noqa: ARG002
        """s."""
        r = average(self.beta1, state["r"], at_x.grad)
        u = average(self.beta2, state["u"], at_x.grad.square())
        return self.rho * (r / u.sqrt()), {**state, "r": r, "u": u}

    def direction(self, at_e: LossAndGrad, state: State) -> tuple[Tensor, State]:
        """d."""
        m = average(self.beta1, state["m"], at_e.grad)
        v = average(self.beta2, state["v"], at_e.grad.square())
        return m / v.sqrt(), {**state, "m": m, "v": v}


class SASAM(Adaptive):
    r"""SA-SAM: SAM whose step size and radius follow a local estimate of the smoothness.

        eta_t = min{ ||x^t - x^{t-1}|| / (2 ||g(x^t) - g(x^{t-1})||),  sqrt(1 + theta_{t-1}) eta_{t-1} }
        theta_t = eta_t / eta_{t-1},   s = sqrt(eta_t) g / ||g||,   x - eta_t h

    with both gradients g on the mini-batch of step t, theta_0 = infinity, and eta_0 = `lr` for the first step. A third
    evaluation, at x^{t-1}, is the price. If the two gradients are equal, only the second bound counts. Source: Naganuma
    et al. 2024, Smoothness-Adaptive SAM, after the adaptive step size of Malitsky and Mishchenko 2020.
    """

    def init(self, theta: Tensor) -> State:
        """x^{t-1} (K, P), eta_{t-1} (K,) and theta_{t-1} (K,) before step 0."""
        return {
            "previous": theta,
            "eta": torch.zeros(len(theta), **self.factory_kwargs),
            "theta": torch.full((len(theta),), torch.inf, **self.factory_kwargs),
        }

    def update(self, f: Objective, step_size: StepSize, x: Tensor, state: State, t: Tensor) -> StepResult:
        """See the class: the step size comes before the perturbation, which is why the template does not fit."""
        at_x, at_previous = f(x), f(state["previous"])
        moved, turned = norm(x - state["previous"]), norm(at_x.grad - at_previous.grad)
        local = torch.where(turned > 0, moved / (2 * turned), torch.inf)
        grown = torch.sqrt(1 + state["theta"]) * state["eta"]
        lr = step_size(at_x, torch.zeros_like(at_x.grad), t).value
        # A row that has not moved, because its gradient is zero, has neither bound: it keeps its step size.
        bounded = torch.minimum(local, grown)
        eta = torch.where(t == 0, lr, torch.where(bounded.isfinite(), bounded, state["eta"]))
        theta = torch.where(t == 0, torch.inf, eta / state["eta"])
        at_e = f(x + along_gradient(at_x, eta.sqrt().unsqueeze(1)))
        gamma = Gamma.of(eta)
        new_x, _ = self.descend(x, at_e.grad, gamma, state)
        return StepResult(new_x, {"previous": x, "eta": eta, "theta": theta}, at_x, at_e, gamma)


def average(beta: Tensor, m: Tensor, g: Tensor) -> Tensor:
    """beta m + (1 - beta) g: beta (K, 1), m and g (K, P) -> (K, P). `lerp` rounds it otherwise than the formula."""
    return torch.lerp(g, m, beta)


def plus_square(u: Tensor, g: Tensor) -> Tensor:
    """u + g^2 by coordinate, (K, P), rounded once."""
    return torch.addcmul(u, g, g)


def norm(rows: Tensor) -> Tensor:
    """The norm of every row, (K, P) -> (K,)."""
    lengths: Tensor = torch.linalg.vecdot(rows, rows).sqrt()
    return lengths
