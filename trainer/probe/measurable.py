"""Whether a trial can be measured at all, before anything starts. Imports torch for a user's own task only."""

from __future__ import annotations

from pathlib import Path

from polysweep.trainer.components.plugins import component, is_own
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.probe.settings import CorruptionSettings, CurvatureSettings, Measurement


def require_measurable(config: TrialConfig, settings: Measurement, data: str | Path = "") -> None:
    """Raise `ConfigError` for a convex task, corruptions of what is no image, and more images than there are."""
    task = component("task", config.task)
    if task.problem:
        raise ConfigError("task", f"{config.task!r} has no model to measure: its constants are in its trials' records")
    size = task.train_size - round(config.val_fraction * task.train_size)
    if is_own("task", config.task):
        from polysweep.trainer.tasks.loading import load_task

        loaded = load_task(config, data)
        size = loaded.size
        if isinstance(settings, CorruptionSettings) and getattr(loaded, "normalise", None) is None:
            raise ConfigError("task", f"{config.task!r} is no task of images; corruptions are of images")
    if isinstance(settings, CurvatureSettings) and settings.images and settings.images > size:
        raise ConfigError("--images", f"{settings.images} is more than the {size} training images of {config.task!r}")
