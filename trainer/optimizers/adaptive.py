r"""Adaptive sharpness-aware optimizers, row-wise like the rest.

Their sources are the publications named; docs/theory.md says through which transcriptions.

Notation: s the gradient at x, e the perturbed point, g the gradient at e, gamma the scheduler's step size (the
publications' learning rate), all products and roots by coordinate. Weight decay is decoupled: the step is along
direction + weight_decay * x. Where a publication starts a second moment at eps^2, so do these; none adds eps later.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.optimizers.optimizer import Optimizer, Oracle, State, StepResult, StepSize
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.scheduler import Gamma


class Adaptive(Optimizer):
    """What the families share: radius, options and weight decay of every row."""

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._configs = configs
        self._rho = self.column([config.rho or 0.0 for config in configs])
        decay = [config.weight_decay for config in configs]
        self._weight_decay = self.column(decay) if any(decay) else None

    def column(self, values: Sequence[float]) -> Tensor:
        """One number of every row as (K, 1)."""
        return torch.tensor(values, **self.place).unsqueeze(1)

    def along(self, theta: Tensor, direction: Tensor, gamma: Gamma) -> Tensor:
        """theta - gamma (direction + weight_decay theta), (K, P)."""
        if self._weight_decay is not None:
            direction = direction + self._weight_decay * theta
        return torch.addcmul(theta, gamma.value.unsqueeze(1), direction, value=-1)

    def option(self, name: str) -> Tensor:
        """An option of every row as (K, 1)."""
        return self.column([float(config.optimizer_options[name]) for config in self._configs])


class AdaSAM(Adaptive):
    r"""AdaSAM: SAM with momentum and AMSGrad's learning rate.

        e = x + rho s / ||s||                          (e = x where s = 0)
        m_t = beta1 m_{t-1} + (1 - beta1) g            m_{-1} = 0
        v_t = beta2 v_{t-1} + (1 - beta2) g^2          v_{-1} = eps^2
        h_t = max{h_{t-1}, v_t}                        h_{-1} = eps^2
        x - gamma m_t / sqrt(h_t)

    Source: algorithm 1 of Sun et al. 2023 (arXiv 2303.00565).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._beta1, self._beta2, self._eps = self.option("beta1"), self.option("beta2"), self.option("eps")

    def initial(self, theta: Tensor) -> State:
        """See `Optimizer`."""
        floor = (self._eps**2).expand_as(theta)
        return {"m": torch.zeros_like(theta), "v": floor, "h": floor}

    def propose(self, oracle: Oracle, step_size: StepSize, theta: Tensor, state: State, step: Tensor) -> StepResult:  # noqa: ARG002
        """See `Optimizer`."""
        x = oracle(theta)
        ascent = _toward(x, self._rho)
        e = oracle(theta + ascent)
        gamma = step_size(e, ascent)
        m = torch.lerp(e.grad, state["m"], self._beta1)  # beta1 m + (1 - beta1) g
        v = torch.lerp(e.grad.square(), state["v"], self._beta2)
        h = torch.maximum(state["h"], v)
        new = self.along(theta, m / h.sqrt(), gamma)
        return StepResult(new, {"m": m, "v": v, "h": h}, x, e, gamma)


class LightSAM1(Adaptive):
    r"""LightSAM-I: AdaGrad-Norm in both steps.

        u_t = u_{t-1} + ||s||^2,   e = x + rho s / sqrt(u_t)       u_{-1} = eps^2
        v_t = v_{t-1} + ||g||^2,   x - gamma g / sqrt(v_t)         v_{-1} = eps^2

    Source: algorithm 1 of Cheng et al. 2025 (arXiv 2505.24399).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._eps = self.option("eps")

    def initial(self, theta: Tensor) -> State:  # noqa: ARG002
        """See `Optimizer`."""
        return {"u": self._eps**2, "v": self._eps**2}

    def propose(self, oracle: Oracle, step_size: StepSize, theta: Tensor, state: State, step: Tensor) -> StepResult:  # noqa: ARG002
        """See `Optimizer`."""
        x = oracle(theta)
        u = state["u"] + x.square.unsqueeze(1)
        ascent = self._rho / u.sqrt() * x.grad
        e = oracle(theta + ascent)
        gamma = step_size(e, ascent)
        v = state["v"] + e.square.unsqueeze(1)
        new = self.along(theta, e.grad / v.sqrt(), gamma)
        return StepResult(new, {"u": u, "v": v}, x, e, gamma)


class LightSAM2(Adaptive):
    r"""LightSAM-II: AdaGrad in both steps.

        u_t = u_{t-1} + s^2,   e = x + rho s / sqrt(u_t)       u_{-1} = eps^2
        v_t = v_{t-1} + g^2,   x - gamma g / sqrt(v_t)         v_{-1} = eps^2

    Source: algorithm 2 of Cheng et al. 2025 (arXiv 2505.24399).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._eps = self.option("eps")

    def initial(self, theta: Tensor) -> State:
        """See `Optimizer`."""
        floor = (self._eps**2).expand_as(theta)
        return {"u": floor, "v": floor}

    def propose(self, oracle: Oracle, step_size: StepSize, theta: Tensor, state: State, step: Tensor) -> StepResult:  # noqa: ARG002
        """See `Optimizer`."""
        x = oracle(theta)
        u = torch.addcmul(state["u"], x.grad, x.grad)
        ascent = self._rho * (x.grad / u.sqrt())
        e = oracle(theta + ascent)
        gamma = step_size(e, ascent)
        v = torch.addcmul(state["v"], e.grad, e.grad)
        new = self.along(theta, e.grad / v.sqrt(), gamma)
        return StepResult(new, {"u": u, "v": v}, x, e, gamma)


class LightSAM3(Adaptive):
    r"""LightSAM-III: Adam, without bias correction, in both steps.

        r_t = beta1 r_{t-1} + (1 - beta1) s,   u_t = beta2 u_{t-1} + (1 - beta2) s^2,   e = x + rho r_t / sqrt(u_t)
        m_t = beta1 m_{t-1} + (1 - beta1) g,   v_t = beta2 v_{t-1} + (1 - beta2) g^2,   x - gamma m_t / sqrt(v_t)

    with r_{-1} = m_{-1} = 0 and u_{-1} = v_{-1} = eps^2. Source: algorithm 3 of Cheng et al. 2025 (arXiv 2505.24399).
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self._beta1, self._beta2, self._eps = self.option("beta1"), self.option("beta2"), self.option("eps")

    def initial(self, theta: Tensor) -> State:
        """See `Optimizer`."""
        floor, zero = (self._eps**2).expand_as(theta), torch.zeros_like(theta)
        return {"r": zero, "u": floor, "m": zero, "v": floor}

    def propose(self, oracle: Oracle, step_size: StepSize, theta: Tensor, state: State, step: Tensor) -> StepResult:  # noqa: ARG002
        """See `Optimizer`."""
        x = oracle(theta)
        r, u = self._moments(state["r"], state["u"], x.grad)
        ascent = self._rho * (r / u.sqrt())
        e = oracle(theta + ascent)
        gamma = step_size(e, ascent)
        m, v = self._moments(state["m"], state["v"], e.grad)
        new = self.along(theta, m / v.sqrt(), gamma)
        return StepResult(new, {"r": r, "u": u, "m": m, "v": v}, x, e, gamma)

    def _moments(self, first: Tensor, second: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Both moments after one more gradient, (K, P)."""
        return torch.lerp(grad, first, self._beta1), torch.lerp(grad.square(), second, self._beta2)


class SASAM(Adaptive):
    r"""SA-SAM: SAM whose step size and radius follow a local estimate of the smoothness.

        eta_t = min{ ||x^t - x^{t-1}|| / (2 ||s(x^t) - s(x^{t-1})||),  sqrt(1 + theta_{t-1}) eta_{t-1} }
        theta_t = eta_t / eta_{t-1},   e = x + sqrt(eta_t) s / ||s||,   x - eta_t g

    with both gradients s on the mini-batch of step t, theta_0 = infinity, and eta_0 = `lr` for the first step. A third
    pass, at x^{t-1}, is the price. Where the two gradients are equal the second bound counts alone. Source: Naganuma et
    al. 2024, Smoothness-Adaptive SAM, after the adaptive step size of Malitsky and Mishchenko 2020.
    """

    def initial(self, theta: Tensor) -> State:
        """x^{t-1}, eta_{t-1} and theta_{t-1}."""
        return {
            "previous": theta,
            "eta": torch.zeros(len(theta), **self.place),
            "theta": torch.full((len(theta),), torch.inf, **self.place),
        }

    def propose(self, oracle: Oracle, step_size: StepSize, theta: Tensor, state: State, step: Tensor) -> StepResult:
        """See `Optimizer`."""
        x = oracle(theta)
        old = oracle(state["previous"])
        moved, turned = _norm(theta - state["previous"]), _norm(x.grad - old.grad)
        local = torch.where(turned > 0, moved / (2 * turned), torch.inf)
        grown = torch.sqrt(1 + state["theta"]) * state["eta"]
        first = step_size(x, torch.zeros_like(x.grad)).value
        # A row that has not moved, because its gradient is zero, has neither bound: it keeps its step size.
        bounded = torch.minimum(local, grown)
        eta = torch.where(step == 0, first, torch.where(bounded.isfinite(), bounded, state["eta"]))
        ratio = torch.where(step == 0, torch.inf, eta / state["eta"])
        ascent = _toward(x, eta.sqrt().unsqueeze(1))
        e = oracle(theta + ascent)
        gamma = Gamma.of(eta)
        new = self.along(theta, e.grad, gamma)
        return StepResult(new, {"previous": theta, "eta": eta, "theta": ratio}, x, e, gamma)


def _norm(rows: Tensor) -> Tensor:
    """The norm of every row, (K, P) -> (K,)."""
    lengths: Tensor = torch.linalg.vecdot(rows, rows).sqrt()
    return lengths


def _toward(x: LossAndGrad, length: Tensor) -> Tensor:
    """Rows of `length` (K, 1) along the gradient; zero where that is zero: (K, P)."""
    norm = x.norm.unsqueeze(1)
    return torch.where(norm > 0, length / norm, 0.0) * x.grad
