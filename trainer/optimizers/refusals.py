"""What an optimizer cannot be trained with, known before anything starts. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polysweep.trainer.components.plugins import component
from polysweep.trainer.components.registry import REGISTRY
from polysweep.trainer.errors import ConfigError

if TYPE_CHECKING:
    from polysweep.trainer.config import TrialConfig


def require_looks(config: TrialConfig) -> None:
    """Raise `ConfigError` if `looksam` would have running statistics of a dropped pass, or nothing to keep."""
    if config.batchnorm_statistics == "both":
        raise ConfigError(
            "batchnorm_statistics",
            "'both' is not for optimizer 'looksam', which makes or drops the second pass by device; expected 'first'",
        )
    if not config.rho:
        raise ConfigError("rho", "0: optimizer 'looksam' would follow rounding errors; take 'sgd', or a rho above 0")


def require_samples(config: TrialConfig) -> None:
    """Raise `ConfigError` if `esam` has no losses of single samples to choose by."""
    if component("task", config.task).problem:
        tasks = [name for name, task in REGISTRY["task"].items() if not task.problem]
        raise ConfigError(
            "optimizer",
            f"'esam' chooses by the losses of samples, which task {config.task!r} has not; expected {', '.join(tasks)}",
        )
