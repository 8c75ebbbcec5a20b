"""Whether what a scheduler is asked to do comes before the training ends. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from polysweep.trainer.errors import ConfigError

if TYPE_CHECKING:
    from polysweep.trainer.config import TrialConfig

AFTER: Final = {
    "step_size": "the step size would never fall",
    "milestones": "the training ends before the step size falls there",
    "warmup_epochs": "the training ends before the step size has reached lr",
}
"""By option that counts epochs, what is wrong with one that is not below `epochs`."""


def require_within_epochs(config: TrialConfig) -> None:
    """Raise `ConfigError` for an option that counts as many epochs as the training has, or more."""
    options: dict[str, Any] = config.scheduler_options
    for name, consequence in AFTER.items():
        value = options.get(name, 0)
        last = value[-1] if isinstance(value, tuple) else value
        if last >= config.epochs:
            raise ConfigError(
                f"scheduler_options.{name}", f"{last:g} is not below epochs = {config.epochs}: {consequence}"
            )
