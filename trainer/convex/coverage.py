"""Whether a trial of a convex task can be trained, and whether the paper's theorems cover it. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polysweep.trainer.convex.problem import Problem, problem_of
from polysweep.trainer.errors import ConfigError

if TYPE_CHECKING:
    from polysweep.trainer.config import TrialConfig

ROUNDING: Final = 1e-9
"""By how much rho L may exceed 1: L is the eigenvalue of a matrix, and 10 is 1/L where L is 0.1 to rounding."""

FULL_BATCH: Final = ("polyak-deterministic", "andriushchenko2022", "khanh2024", "oikonomou2025")
"""Schedulers whose guarantee is for full batches, unless `scheduler_options.setting` says otherwise."""


def problem_for(config: TrialConfig) -> Problem:
    """The problem of a trial of a convex task."""
    return problem_of(config.task, config.task_options)


def is_full_batch(config: TrialConfig) -> bool:
    """Whether every step sees all f_i: the deterministic case."""
    return bool(config.batch_size == problem_for(config).n)


def smoothness(config: TrialConfig) -> float:
    """What the theorems ask of the radius, rho <= 1 / this: L with full batches, else L_max."""
    problem = problem_for(config)
    return problem.L if config.batch_size == problem.n else problem.L_max


def is_lower_bound(value: float, problem: Problem, batch_size: int) -> bool:
    """Whether a lower bound is known to be one: of f with full batches, else of mini-batch losses, which are >= 0."""
    return value <= (problem.f_star if batch_size == problem.n else 0.0)


def require_covered(config: TrialConfig) -> None:
    """Raise `ConfigError` if a convex task, its batches, its scheduler and its radius do not fit together."""
    problem = problem_for(config)
    if config.val_fraction:
        raise ConfigError("val_fraction", f"{config.val_fraction}: {config.task} has nothing to hold out")
    if config.batch_size > problem.n:
        raise ConfigError("batch_size", f"{config.batch_size} is larger than n = {problem.n} of {config.task}")
    stochastic = config.scheduler_options.get("setting") == "stochastic"
    if stochastic and not problem.mu:
        raise ConfigError("scheduler", f"{config.scheduler!r} needs mu > 0; {config.task} has mu = 0 with its options")
    if config.scheduler in FULL_BATCH and not stochastic and config.batch_size != problem.n:
        _refuse_mini_batches(config, problem)
    if config.task_options.get("check") and config.optimizer == "usam":
        _require_radius(config)
        if not is_lower_bound(config.lower_bound or 0.0, problem, config.batch_size):
            raise ConfigError(
                "lower_bound",
                f"{config.lower_bound:g} is not a known lower bound of every mini-batch loss: "
                + (f"f* = {problem.f_star:.6g}" if config.batch_size == problem.n else "only 0 and below are")
                + "; take a smaller one, or leave out task_options.check",
            )


def _refuse_mini_batches(config: TrialConfig, problem: Problem) -> None:
    if config.scheduler == "polyak-deterministic":
        if not problem.is_interpolated:
            raise ConfigError(
                "batch_size",
                f"{config.batch_size}: 'polyak-deterministic' needs full batches (batch_size: {problem.n}), or a "
                "problem whose f_i share a minimiser (ridge with consistent: true and lambda_r: 0); else use 'polyak'",
            )
        return
    other = "" if config.scheduler == "khanh2024" else ", or scheduler_options.setting: stochastic"
    raise ConfigError(
        "batch_size",
        f"{config.batch_size}: the guarantee of {config.scheduler!r} is for full batches; "
        f"use batch_size: {problem.n}{other}",
    )


def _require_radius(config: TrialConfig) -> None:
    """A radius that decreases to 0 is covered from any start on (theorem Decreasing radius)."""
    if config.rho is None or config.rho_schedule != "constant":
        return
    bound = smoothness(config)
    if config.rho * bound > 1 + ROUNDING:
        letter = "L" if is_full_batch(config) else "L_max"
        raise ConfigError(
            "rho",
            f"{config.rho:g} is above 1/{letter} = {1 / bound:.6g}: no theorem of the paper covers it; take a smaller "
            "one, or leave out task_options.check",
        )
