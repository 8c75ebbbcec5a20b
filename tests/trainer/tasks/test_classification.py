"""The classification task: its split by class, logits that fit its labels, and its calibration error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.task import Rows
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.digits import digits
from polysweep.trainer.tasks.loading import load_task
from polysweep.trainer.tasks.samples import train_val_test
from polysweep.trainer.train import train
from tests.support.cifar_images import CIFAR
from tests.support.cifar_images import data as data
from tests.support.lab import lab as lab
from tests.support.lab import own
from tests.support.stacks import config, stack_of


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


def ece(logits: Tensor, labels: Tensor) -> list[float]:
    """That of a whole set, as it is measured in chunks: of the logits (K, n, classes) the first 3 and the others."""
    task = Classification(*train_val_test(torch.zeros(10, 1), torch.arange(10) % 2), classes=logits.shape[2])
    chunks = [task.sums(logits[:, at], labels[:, at]) for at in (slice(3), slice(3, None))]
    totals = {name: value + chunks[1][name] for name, value in chunks[0].items()}
    return task.means(totals, labels.shape[1])["ece"].tolist()


def test_the_calibration_error_of_given_probabilities_is_exact_row_by_row() -> None:
    """Three images at 0.75, of which the first row has two right and the second one; 0.875 and 0.625 of other bins."""
    top = torch.tensor([0.75, 0.75, 0.75, 0.875, 0.625], dtype=torch.float64)
    logits = torch.stack([top, 1 - top], dim=1).log()
    both = torch.stack([logits, logits.flip(1)])  # the second row takes the other class everywhere
    labels = torch.tensor([0, 0, 1, 1, 0]).expand(2, -1)
    first = (abs(2.25 - 2) + abs(0.875 - 0) + abs(0.625 - 1)) / 5
    second = (abs(2.25 - 1) + abs(0.875 - 1) + abs(0.625 - 0)) / 5
    assert ece(both, labels) == pytest.approx([first, second], rel=1e-14)


def test_the_calibration_error_is_that_of_the_definition_whatever_the_chunks() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2, 400, 10, generator=generator, dtype=torch.float64)
    labels = torch.randint(10, (2, 400), generator=generator)
    expected = []
    for row in range(2):
        probabilities = np.exp(logits[row].numpy()) / np.exp(logits[row].numpy()).sum(1, keepdims=True)
        top, hit = probabilities.max(1), probabilities.argmax(1) == labels[row].numpy()
        bins = [(top > m / 15) & (top <= (m + 1) / 15) for m in range(15)]
        expected.append(sum(b.sum() / 400 * abs(hit[b].mean() - top[b].mean()) for b in bins if b.any()))
    assert ece(logits, labels) == pytest.approx(expected, rel=1e-12)


def test_certainty_is_in_the_last_bin_and_only_right_if_the_label_is() -> None:
    certain = torch.tensor([[[200.0, 0.0], [200.0, 0.0], [0.0, 200.0], [0.0, 200.0]]])
    assert ece(certain, torch.tensor([[0, 0, 1, 1]])) == [0.0]
    assert ece(certain, torch.tensor([[0, 0, 1, 0]])) == [0.25]
    assert ece(certain, torch.tensor([[1, 1, 0, 0]])) == [1.0]


def test_the_loss_of_the_test_set_is_the_mean_negative_log_likelihood_without_smoothing() -> None:
    """So it is what others log as NLL."""
    rows = [config(label_smoothing=0.3, seed=seed) for seed in range(2)]
    stack = stack_of(*rows)
    measured = stack.measure(0)
    oracle, _ = stack.task.oracle_and_monitor(rows, {"device": stack.device, "dtype": stack.dtype})
    ((images, labels),) = stack.task.test.chunks(360)
    logits = oracle.evaluate(Rows(stack.theta, stack.buffers), stack.task.inputs(images))
    # 360 float32 losses are added up in two orders
    assert measured["test/loss"].tolist() == pytest.approx(
        [F.cross_entropy(row, labels).item() for row in logits], rel=1e-6
    )


def test_the_calibration_error_of_every_held_out_set_is_in_the_history() -> None:
    held_out, plain = (next(train([config(val_fraction=fraction, epochs=1)]))[0].history for fraction in (0.2, 0.0))
    assert 0 < held_out["val/ece"] < 1 and 0 < held_out["test/ece"] < 1
    assert plain["val/ece"] is None and plain["test/ece"] is not None


def test_a_metric_ece_of_ones_own_replaces_it() -> None:
    task = Classification(*train_val_test(torch.zeros(10, 1), torch.arange(10) % 2), classes=2, metrics={"ece": len})
    assert task.columns.count("test/ece") == 1
