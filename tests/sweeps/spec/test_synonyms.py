"""Names of one meaning, whatever their case and separators."""

from __future__ import annotations

import pytest

from polysweep.sweeps.spec.synonyms import GROUPS, means
from polysweep.trainer.config import TrialConfig


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        ("Learning Rate", "lr"), ("base_lr", "lr"), ("optimizer.lr", "lr"), ("--lr0", "lr"), ("optim_args/LR", "lr"),
        ("l2", "weight_decay"), ("weightDecayRate", "weight_decay"), ("train_batch_size", "batch_size"),
        ("trainer.max-epochs", "epochs"), ("backbone", "model"), ("hidden_dim", "hidden"), ("config.seed", "seed"),
        ("optimizer.name", "optimizer"), ("dataset", "task"), ("valid_split", "val_fraction"),
        ("label_noise_ratio", "label_noise"),
    ],
)  # fmt: skip
def test_foreign_names_mean_ours(foreign: str, ours: str) -> None:
    assert means(foreign, ours)
    assert [name for name in (*TrialConfig.model_fields, "hidden") if means(foreign, name)] == [ours]


@pytest.mark.parametrize(
    "name", ["decay", "step_size", "alpha", "gamma", "test_batch_size", "max_steps", "encoder_lr", "train_model"]
)
def test_names_that_may_mean_several_things_mean_nothing(name: str) -> None:
    assert not [ours for ours in TrialConfig.model_fields if means(name, ours)]


def test_no_field_is_a_synonym_of_another() -> None:
    groups = [GROUPS[name.replace("_", "")] for name in TrialConfig.model_fields if name.replace("_", "") in GROUPS]
    assert len(groups) == len(set(groups))
