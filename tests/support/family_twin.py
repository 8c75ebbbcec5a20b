"""The SAM family and the step sizes after Polyak's, one trial in NumPy: slow, legible, and independent of the trainer.

Every function reads like its publication's equation, with f(x) - l at a perturbed point as the paper has it. A rule
takes `Step`s and gives x^1, x^2, ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Losses = Callable[[Vector], Vector]
"""The losses of a mini-batch's samples at x."""
Gradient = Callable[[Vector, Vector], Vector]
"""The gradient at x of the sum of the samples' losses with these weights."""


class Step(NamedTuple):
    """A mini-batch, and the mask that ESAM draws for it."""

    losses: Losses
    gradient: Gradient
    mask: Vector | None = None


class Evaluated(NamedTuple):
    """Loss and gradient at e, of all samples or of those that ESAM chooses."""

    f: float
    g: Vector


def evaluate(step: Step, x: Vector, chosen: Vector | None = None) -> Evaluated:
    """The mean loss of the chosen samples, by default of all, and its gradient."""
    losses = step.losses(x)
    weights = np.full(len(losses), 1 / len(losses)) if chosen is None else chosen / chosen.sum()
    return Evaluated(float(weights @ losses), step.gradient(x, weights))


# Optimizers: of a mini-batch the perturbation, what is seen at e, and what is followed.

Looked = tuple[Vector, Evaluated, Vector]


def length(v: Vector) -> float:
    """||v||."""
    return math.sqrt(math.fsum(v * v))


def dot(u: Vector, v: Vector) -> float:
    """<u, v>."""
    return math.fsum(u * v)


def orthogonal(v: Vector, u: Vector) -> Vector:
    """v - ||v|| cos(u, v) u / ||u||."""
    cosine = dot(u, v) / (length(u) * length(v))
    return v - length(v) * cosine * u / length(u)


class Rule:
    """SGD, USAM, SAM, ASAM, GSAM, F-SAM, LookSAM and ESAM, by `optimizer`, with their `optimizer_options`."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.name, self.options = config["optimizer"], config["optimizer_options"]
        self.rho, self.schedule = config.get("rho"), config.get("rho_schedule")
        self.kept: Vector | float = 0.0
        self.t = -1

    def __call__(self, step: Step, x: Vector) -> Looked:
        """e - x, loss and gradient at e, and the direction."""
        self.t += 1
        rho = self.rho and self.rho / {"inverse": self.t + 1, "inverse_sqrt": math.sqrt(self.t + 1)}.get(
            str(self.schedule), 1
        )
        return getattr(self, self.name.replace("-", "_"))(step, x, evaluate(step, x).g, rho)

    def sgd(self, step: Step, x: Vector, *_: Any) -> Looked:
        """s = 0."""
        return self._along_h(step, x, np.zeros_like(x))

    def usam(self, step: Step, x: Vector, g: Vector, rho: float) -> Looked:
        """s = rho g."""
        return self._along_h(step, x, rho * g)

    def sam(self, step: Step, x: Vector, g: Vector, rho: float) -> Looked:
        """s = rho g / ||g||."""
        return self._along_h(step, x, rho * g / length(g))

    def asam(self, step: Step, x: Vector, g: Vector, rho: float) -> Looked:
        """s = rho T^2 g / ||T g||."""
        T = np.abs(x) + self.options["eta"]
        return self._along_h(step, x, rho * T**2 * g / length(T * g))

    def f_sam(self, step: Step, x: Vector, g: Vector, rho: float) -> Looked:
        """s = rho (g - sigma m) / ||g - sigma m||."""
        self.kept = self.options["beta"] * self.kept + (1 - self.options["beta"]) * g
        friendly = g - self.options["sigma"] * self.kept
        return self._along_h(step, x, rho * friendly / length(friendly))

    def gsam(self, step: Step, x: Vector, g: Vector, rho: float) -> Looked:
        """d = h - alpha g_perp."""
        s, at_e, h = self.sam(step, x, g, rho)
        return s, at_e, h - self.options["alpha"] * orthogonal(g, h)

    def looksam(self, step: Step, x: Vector, g: Vector, rho: float) -> Looked:
        """SAM every k steps, else d = g + alpha ||g|| / ||g_v|| g_v."""
        if self.t % self.options["every"] == 0:
            s, at_e, h = self.sam(step, x, g, rho)
            self.kept = orthogonal(h, g)
            return s, at_e, h
        v = np.asarray(self.kept)
        d = g + self.options["alpha"] * length(g) / length(v) * v
        return np.zeros_like(x), evaluate(step, x), d

    def esam(self, step: Step, x: Vector, g: Vector, rho: float) -> Looked:
        """s = rho mask g / (beta ||g||), and h of the samples whose losses grow most."""
        assert step.mask is not None
        s = rho / self.options["beta"] * step.mask * g / length(g)
        growth = step.losses(x + s) - step.losses(x)
        count = max(1, round(self.options["gamma"] * len(growth)))
        chosen = np.zeros(len(growth))
        chosen[np.argsort(-growth, kind="stable")[:count]] = 1
        at_e = evaluate(step, x + s, chosen)
        return s, at_e, at_e.g

    def _along_h(self, step: Step, x: Vector, s: Vector) -> Looked:
        at_e = evaluate(step, x + s)
        return s, at_e, at_e.g


# Schedulers: of what is seen at e the step size, and what is followed.


class StepSize:
    """constant, cosine, polyak, sps-plus, decsps, momo and ngn, by `scheduler`, with their fields and options."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.name, self.config, self.options = config["scheduler"], config, config["scheduler_options"]
        self.t = -1
        self.before: Any = None  # DecSPS: c_{t-1} gamma_{t-1} of the last step that was not 0; MoMo: its averages

    def __call__(self, x: Vector, s: Vector, at_e: Evaluated, d: Vector, epoch: int) -> tuple[float, Vector]:
        """gamma and the direction."""
        self.t += 1
        excess = at_e.f - self.config.get("lower_bound", 0.0) - dot(at_e.g, s)
        square = dot(at_e.g, at_e.g)
        if self.name == "momo":
            return self.momo(x, s, at_e)
        if self.name == "cosine":
            low, high = self.config["lr_min"], self.config["lr"]
            return low + (high - low) * (1 + math.cos(math.pi * epoch / self.config["epochs"])) / 2, d
        if self.name == "constant":
            return self.config["lr"], d
        if excess <= 0:
            return 0.0, d
        return getattr(self, self.name.replace("-", "_"))(excess, square), d

    def polyak(self, excess: float, square: float) -> float:
        """min{E / ||h||^2, gamma_b}."""
        return min(excess / square, self.config["gamma_b"])

    def sps_plus(self, excess: float, square: float) -> float:
        """E / ||h||^2."""
        return excess / square

    def decsps(self, excess: float, square: float) -> float:
        """min{E / ||h||^2, c_{t-1} gamma_{t-1}} / c_t."""
        c0 = self.options["c0"]
        before = c0 * self.config["gamma_b"] if self.before is None else self.before
        self.before = min(excess / square, before)
        return self.before / (c0 * math.sqrt(self.t + 1))

    def ngn(self, excess: float, square: float) -> float:
        """sigma / (1 + sigma ||h||^2 / (2 E))."""
        sigma = self.config["lr"]
        return sigma / (1 + sigma * square / (2 * excess))

    def momo(self, x: Vector, s: Vector, at_e: Evaluated) -> tuple[float, Vector]:
        """min{(f_t + <d_t, x> - p_t - l)_+ / ||d_t||^2, lr} along d_t."""
        beta, now = self.options["beta"], (at_e.f, at_e.g, dot(at_e.g, x + s))
        f, d, p = (beta * a + (1 - beta) * b for a, b in zip(self.before or now, now, strict=True))
        self.before = f, d, p
        excess = f + dot(d, x) - p - self.config["lower_bound"]
        return min(max(excess, 0.0) / dot(d, d), self.config["lr"]), d


def trajectory(config: dict[str, Any], x: Vector, steps: Iterator[tuple[int, Step]]) -> Iterator[Vector]:
    """x^1, x^2, ... of a config's fields from its epochs and mini-batches, with momentum and coupled weight decay."""
    rule, step_size = Rule(config), StepSize(config)
    velocity = np.zeros_like(x)
    for epoch, step in steps:
        s, at_e, d = rule(step, x)
        gamma, d = step_size(x, s, at_e, d, epoch)
        d = d + config["weight_decay"] * x
        velocity = (config.get("momentum") or 0.0) * velocity + d
        x = x - gamma * velocity
        yield x
