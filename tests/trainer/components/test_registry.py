"""The names that a config may use, and their defaults."""

from __future__ import annotations

import json

from polysweep.trainer.config import TrialConfig
from tests.support.cifar_images import CIFAR


def test_cifar_is_augmented_as_in_the_paper_by_default() -> None:
    config = TrialConfig.parse({**CIFAR, "task": "cifar10", "model": "resnet20"})
    assert config.augmentation == "crop+flip"
    assert "augmentation" not in json.dumps(config.canonical())
