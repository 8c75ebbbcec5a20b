"""The classification task: its split by class, and logits that fit its labels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.tasks.digits import digits
from polysweep.trainer.tasks.loading import load_task
from polysweep.trainer.train import train
from tests.support.cifar_images import CIFAR
from tests.support.cifar_images import data as data
from tests.support.lab import lab as lab
from tests.support.lab import own


def test_logits_of_another_shape_are_refused_also_without_a_rehearsal(lab: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"'steps:too_few' gives logits \(32, 9\), expected \(images, classes\) = \(32, 10\)"
    ):
        next(train([own(model="steps:too_few", task="digits")]))


def test_the_held_out_set_is_stratified_and_the_same_for_every_seed(data: Path) -> None:
    one = load_task(TrialConfig.parse({**CIFAR, "val_fraction": 0.2, "seed": 1}), data)
    two = load_task(TrialConfig.parse({**CIFAR, "val_fraction": 0.2, "seed": 2}), data)
    assert one.val is not None and two.val is not None
    assert torch.equal(one.val.rows, two.val.rows)
    assert one.val.labels[one.val.rows].bincount().tolist() == [2] * 8
    assert one.train.labels[one.train.rows].bincount().tolist() == [8] * 8
    assert sorted([*one.val.rows.tolist(), *one.train.rows.tolist()]) == list(range(80))


def test_holding_out_a_whole_class_is_refused() -> None:
    for fraction, reason in (
        (0.001, "1 of 1437 samples empties class"),
        (0.9999, "1437 of 1437 samples leaves a set empty"),
    ):
        with pytest.raises(ConfigError, match=f"val_fraction: holding out {reason}"):
            digits(Path(), fraction)
