"""What is measured of a convex task: distances from the minimum, first hits, and violations of the paper's bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from polysweep.trainer.components.component import DEFAULT_BASE
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex import bounds
from polysweep.trainer.convex.coverage import ROUNDING, is_full_batch, is_lower_bound, smoothness
from polysweep.trainer.history import HITS, PROBLEM_METRICS
from polysweep.trainer.optimizers.optimizer import State, StepResult
from polysweep.trainer.optimizers.sam import decay_power
from polysweep.trainer.task import Measurement, Monitor, Rows

if TYPE_CHECKING:
    from polysweep.trainer.convex.task import Convex

RELATIVE_ROUNDING: Final = 1e-12
"""What a sum of some hundred products may be off by, relative to its largest term."""
SOFTPLUS: Final = math.exp(-20)
"""What torch's softplus, the loss of a mini-batch of `logistic`, may be off by: from 20 on it is its argument."""
FEW: Final = 16
EPS: Final = torch.finfo(torch.float64).eps


class BoundsMonitor(Monitor):
    r"""Follows the rows of a convex task from step to step; never changes them.

    State, (K, ...): `sum` of x^0 .. x^{t-1}; `start`, f(x^0) - f* and ||x^0 - x*||^2; `levels`, the former times each
    of `HITS`, and `hits`, the first t at which f(x^t) - f* is that small, infinite for none yet. With
    `task_options.check` also `distance`, ||x^t - x*||^2, and `violations`: how often a step size was below its bound,
    and ||x^{t+1} - x*||^2 above its own, each by more than rounding can explain; and `lemmas`, in how many steps an
    inequality of the auxiliary lemmas did not hold. All are defined for USAM and SGD without momentum and weight decay,
    with a Polyak step size or a constant one small enough (corollary 3.7); the first two where rho_t <= 1/L.
    """

    def __init__(self, configs: Sequence[TrialConfig], task: Convex, factory_kwargs: Mapping[str, Any]) -> None:
        self._task = task
        self._full = is_full_batch(configs[0])
        self._checks = bool(task.options["check"])
        caps, lower_bounds = zip(*[_cap_and_bound(config, task) for config in configs], strict=True)
        smooth = smoothness(configs[0])
        self.covered = [
            _is_covered(c, cap, smooth) and is_lower_bound(c.lower_bound or 0.0, task.problem, c.batch_size)
            for c, cap in zip(configs, caps, strict=True)
        ]
        self._smooth = smooth
        self._rho = torch.tensor([c.rho or 0.0 for c in configs], **factory_kwargs)
        self._power = torch.tensor([decay_power(c) for c in configs], **factory_kwargs)
        self._decays = any(decay_power(config) for config in configs)
        self._cap = torch.tensor(caps, **factory_kwargs)
        self._ceiling = torch.tensor([bounds.ceiling(smooth, cap) for cap in caps], **factory_kwargs)
        self._lower_bound = torch.tensor(lower_bounds, **factory_kwargs)
        self._levels = torch.tensor(HITS, **factory_kwargs)
        self._size_star = float(task.x_star.norm())
        self._is_captured = False  # hits are then looked for in every step
        self._gaps: list[Tensor] = []

    def init(self, theta: Tensor) -> dict[str, Tensor]:
        """The state at x^0."""
        start, distance = self._task.gap(theta), self._distance(theta)
        state = {
            "sum": torch.zeros_like(theta),
            "hits": torch.full((len(theta), len(HITS)), torch.inf, dtype=theta.dtype, device=theta.device),
            "start": torch.stack([start, distance], dim=1),
            "levels": start.unsqueeze(1) * self._levels,
        }
        if self._checks:
            violations = torch.zeros(len(theta), 2, dtype=torch.int64, device=theta.device)
            state |= {"distance": distance, "violations": violations, "lemmas": torch.zeros_like(violations[:, 0])}
        return state

    def run_captured(self) -> None:
        """See `Monitor`."""
        self._is_captured = True

    def after(self, state: State, theta: Tensor, result: StepResult, labels: Tensor, step: Tensor) -> State:
        """See `Monitor`; the labels of a convex task are the numbers of its samples."""
        updated = {**state, "sum": state["sum"] + theta}
        if self._full and (gap := result.x.gap) is not None:
            if self._is_captured:
                updated["hits"] = self._hit(state, gap.unsqueeze(1), step.to(gap.dtype).view(1, 1))
            else:
                self._gaps.append(gap)
        if self._checks:
            distance = self._distance(result.theta)
            updated |= {
                "distance": distance,
                "violations": state["violations"] + self._violated(state["distance"], distance, result, labels, step),
                "lemmas": state["lemmas"],
            }
            if any(self.covered):
                updated["lemmas"] = state["lemmas"] + self._contradicted(state["distance"], result, step)
        return updated

    def measure(self, state: State, rows: Rows, active: Tensor, step: int) -> Measurement:
        """The columns of `trainer.history.PROBLEM_COLUMNS`.

        A row may be finite and so far off that f is not: it has diverged, and no table may average over it.
        """
        state = self._with_hits(state, rows.theta, active, step)
        columns = self._columns(state, rows.theta, step)
        measured = torch.stack([columns[name] for name in PROBLEM_METRICS])
        return Measurement(columns, measured.isfinite().all(0), state)

    def _with_hits(self, state: State, theta: Tensor, active: Tensor, step: int) -> State:
        """The state with the hits of the epoch's steps and of x^step."""
        gaps = [*self._gaps, self._task.gap(theta)]
        self._gaps.clear()
        times = torch.arange(step - len(gaps) + 1, step + 1, dtype=theta.dtype, device=theta.device)
        hits = self._hit(state, torch.stack(gaps, dim=1), times.expand(len(theta), -1))
        return {**state, "hits": torch.where(active.unsqueeze(1), hits, state["hits"])}

    def _hit(self, state: State, gaps: Tensor, times: Tensor) -> Tensor:
        """`hits` where f(x^t) - f* was `gaps` (K, m) at the steps `times` (K, m)."""
        below = gaps.unsqueeze(2) <= state["levels"].unsqueeze(1)
        return torch.minimum(state["hits"], torch.where(below, times.unsqueeze(2), torch.inf).amin(1))

    def _columns(self, state: State, theta: Tensor, step: int) -> dict[str, Tensor]:
        gap, distance = self._task.gap(theta), self._distance(theta)
        start = state["start"]
        columns = {
            "suboptimality": gap,
            "suboptimality/relative": gap / start[:, 0],
            "suboptimality/cesaro": self._task.gap(state["sum"] / step),
            "distance": distance,
            "distance/relative": distance / start[:, 1],
        }
        hits = torch.where(state["hits"].isfinite(), state["hits"], torch.nan)
        columns |= {f"iterations/{level:.0e}".replace("e-0", "e-"): hits[:, at] for at, level in enumerate(HITS)}
        if self._checks:
            covered = torch.tensor(self.covered, device=theta.device).unsqueeze(1)
            counts = torch.where(covered, state["violations"].to(theta.dtype), torch.nan)
            lemmas = torch.where(covered[:, 0], state["lemmas"].to(theta.dtype), torch.nan)
            columns |= {
                "violations/gamma": counts[:, 0], "violations/descent": counts[:, 1], "violations/lemmas": lemmas,
            }  # fmt: skip
        return columns

    def _distance(self, theta: Tensor) -> Tensor:
        delta = theta - self._task.x_star
        distance: Tensor = torch.linalg.vecdot(delta, delta)
        return distance

    def _violated(self, before: Tensor, after: Tensor, result: StepResult, order: Tensor, step: Tensor) -> Tensor:
        """Which of two inequalities do not hold in this step, (K, 2) of 0 and 1: gamma >= its bound; growth <= its own.

        `before` and `after` are ||x^t - x*||^2 and ||x^{t+1} - x*||^2, (K,); growth is their difference.
        """
        rho, gamma = self._radius(step), result.gamma.value
        excess, noise = self._excess_and_noise(result, order)
        least_gamma = torch.minimum(bounds.least_step(self._smooth, rho), self._cap)
        cap = torch.where(self._cap.isfinite(), self._cap, 0.0)  # infinite only where the noise is 0
        most_growth = bounds.growth(bounds.alpha(self._smooth, rho, self._ceiling), excess, cap, noise)

        is_small = gamma < least_gamma * (1 - self._blur(before, excess, result)) - RELATIVE_ROUNDING / self._smooth
        has_grown = after - before > most_growth + self._growth_slack(before, most_growth, gamma)
        applies = (self._smooth * rho <= 1 + ROUNDING) & (result.x.norm > 0)
        return (torch.stack([is_small, has_grown], dim=1) & applies.unsqueeze(1)).to(torch.int64)

    def _excess_and_noise(self, result: StepResult, order: Tensor) -> tuple[Tensor, Tensor]:
        """f_S(x) - l_S and f_S(x*) - l_S of the mini-batch S, (K,)."""
        if self._full and result.x.gap is not None:
            noise = self._task.f_star - self._lower_bound
            return result.x.gap + noise, noise
        noise = self._task.star_losses[order].mean(1) - self._lower_bound
        return result.x.loss - self._lower_bound, noise

    def _grain(self, size: Tensor) -> Tensor:
        """How exactly x - x* is known, (K,): x is rounded to eps ||x||, and x* is found to the problem's own grain.

        `size` is ||x - x*||, (K,).
        """
        return FEW * (EPS * (self._size_star + size) + self._task.problem.grain)

    def _growth_slack(self, before: Tensor, most_growth: Tensor, gamma: Tensor) -> Tensor:
        """By how much rounding can make ||x - x*||^2 grow more than it may, (K,)."""
        size = before.sqrt()
        grain = self._grain(size)
        of_gradient = FEW * EPS * self._smooth * size  # much of it where A hardly sees x - x*
        of_sums = RELATIVE_ROUNDING * (before + most_growth.abs())
        return of_sums + grain * (size + grain) + 2 * gamma * of_gradient * size

    def _blur(self, before: Tensor, excess: Tensor, result: StepResult) -> Tensor:
        """By which share of itself rounding can make a step size too small, (K,)."""
        size = before.sqrt()
        of_loss = self._smooth * before / excess.abs()
        of_gradient = self._smooth * size / result.x.norm
        return (FEW * EPS + self._grain(size) / size) * (of_loss + of_gradient)

    def _radius(self, step: Tensor) -> Tensor:
        """rho_t, (K,)."""
        return self._rho / (step.to(self._rho.dtype) + 1) ** self._power if self._decays else self._rho

    def _contradicted(self, distance: Tensor, result: StepResult, step: Tensor) -> Tensor:
        """Whether an inequality of the auxiliary lemmas does not hold in this step: (K,) of 0 and 1."""
        x, e, rho, smooth = result.x, result.e, self._radius(step), self._smooth
        product = torch.linalg.vecdot(e.grad, x.grad)
        exact = self._full and x.gap is not None and e.gap is not None
        at_x, at_e = (x.gap, e.gap) if exact else (x.loss, e.loss)
        assert at_x is not None and at_e is not None
        inequalities = [*bounds.lemmas(smooth, rho, x.square, e.square, product, at_e - at_x, _larger)]
        # x is known to `grain`, so the gradient to L times that and f to ||gradient|| times it.
        size = distance.sqrt()
        grain = self._grain(size)
        off, longest, stretch = smooth * grain, torch.maximum(x.norm, e.norm), 1 + smooth * rho
        slack = (2 * off * longest + off**2 + RELATIVE_ROUNDING * longest**2) * stretch**2
        of_f = FEW * EPS * (at_x.abs() + at_e.abs() + smooth * distance)
        of_f = of_f + longest * grain + smooth * grain**2 + rho * slack
        if not exact and self._task.problem.kind == "logistic":
            of_f = of_f + SOFTPLUS
        slacks = [slack, slack, of_f, slack, slack, of_f, slack]
        if exact:
            inequalities += bounds.properties(smooth, self._task.problem.mu, at_x, x.square, distance)
            of_x = RELATIVE_ROUNDING * smooth * distance + smooth * grain * (size + grain)
            slacks += [of_x, smooth * of_x, smooth * of_x, smooth * of_x, of_x, smooth * of_x]
        less, more = (torch.stack(side) for side in zip(*inequalities, strict=True))
        return (less > more + torch.stack(slacks)).any(0).to(torch.int64)


def _larger(values: Tensor, other: float) -> Tensor:
    return values.clamp(min=other)


def _cap_and_bound(config: TrialConfig, task: Convex) -> tuple[float, float]:
    """gamma_b and l_S of a row as the theorems read them; a constant step size is its own cap."""
    if config.scheduler == "polyak":
        return config.gamma_b or math.inf, config.lower_bound or 0.0
    if config.scheduler == "polyak-deterministic":
        return math.inf, task.f_star
    return config.lr or math.inf, task.f_star if is_full_batch(config) else 0.0


def _is_covered(config: TrialConfig, cap: float, smooth: float) -> bool:
    """Whether the two inequalities are claimed for a row at all."""
    is_plain = config.base in (None, DEFAULT_BASE) and not config.weight_decay and not config.momentum
    if config.optimizer not in ("usam", "sgd") or not is_plain:
        return False
    if config.scheduler == "constant":
        return smooth * (config.rho or 0.0) < 1 and cap <= bounds.least_step(smooth, config.rho or 0.0)
    return config.scheduler in ("polyak", "polyak-deterministic")
