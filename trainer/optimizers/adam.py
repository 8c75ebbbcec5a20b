r"""Adam and AdamW, by themselves and as the descent step of USAM and SAM.

Notation as in `trainer.optimizers.optimizer`; all products, quotients and roots are by coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.optimizers.optimizer import Optimizer, State
from polysweep.trainer.optimizers.sam import SharpnessAware


class AdamStep(Optimizer):
    r"""The descent step of Adam, and of AdamW, whose weight decay is decoupled.

        d   = h + weight_decay x                                       (Adam; h in AdamW)
        m_t = beta1 m_{t-1} + (1 - beta1) d,     c_t = beta1 c_{t-1} + (1 - beta1)
        v_t = beta2 v_{t-1} + (1 - beta2) d^2,   k_t = beta2 k_{t-1} + (1 - beta2)
        x - gamma (m_t / c_t) / (sqrt(v_t / k_t) + eps)                (Adam)
        x - gamma ((m_t / c_t) / (sqrt(v_t / k_t) + eps) + weight_decay x)          (AdamW)

    h is the rule's direction, grad f(e). m, v, c and k are 0 before step 0, so that c_t = 1 - beta1^(t+1) and k_t =
    1 - beta2^(t+1): the bias correction of torch.optim, as averages of 1 that are rounded like those that they divide.
    Source: algorithm 1 of Kingma and Ba 2015 (arXiv 1412.6980), algorithm 2 of Loshchilov and Hutter 2019 (arXiv
    1711.05101), with the learning rate in place of their schedule multiplier.
    """

    def __init__(self, configs: Sequence[TrialConfig], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(configs, device, dtype)
        self.beta1, self.beta2, self.eps = self.option("beta1"), self.option("beta2"), self.option("eps")

    def init(self, theta: Tensor) -> State:
        """m and v (K, P), c and k (K, 1) before step 0."""
        zero, none = torch.zeros_like(theta), torch.zeros_like(self.eps)
        return {"m": zero, "v": zero, "c": none, "k": none}

    def base_step(self, d: Tensor, state: State) -> tuple[Tensor, State]:
        """(m_t / c_t) / (sqrt(v_t / k_t) + eps)."""
        beta1, beta2 = self.beta1, self.beta2
        m = beta1 * state["m"] + (1 - beta1) * d
        v = beta2 * state["v"] + (1 - beta2) * d.square()
        c = beta1 * state["c"] + (1 - beta1)
        k = beta2 * state["k"] + (1 - beta2)
        return (m / c) / ((v / k).sqrt() + self.eps), {**state, "m": m, "v": v, "c": c, "k": k}


class Adam(AdamStep):
    """Adam and AdamW: one evaluation a step, at x, with s = 0 and h = grad f(x)."""

    is_perturbed = False


class SharpnessAwareAdam(SharpnessAware, AdamStep):
    """USAM and SAM with the descent step of Adam or AdamW: h = grad f(x + s). Weight decay does not enter s."""
