"""Label noise: which labels, by row, and that nothing but training labels changes."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest
import torch

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.tasks.digits import digits
from polysweep.trainer.tasks.label_noise import noisy
from polysweep.trainer.tasks.loading import load_task
from polysweep.trainer.train import train
from tests.support import mini_cifar
from tests.support.lab import lab as lab
from tests.support.lab import own
from tests.support.project import TINY
from tests.support.recorder import Recorder
from tests.support.stacks import config, mini_batches, stack_of
from tests.support.training import by_row, configs

LABELS = torch.arange(9_000) % 10


@pytest.mark.parametrize("share", [0.0, 0.2, 0.33333, 0.6, 0.99])
def test_exactly_the_share_is_wrong(share: float) -> None:
    labels = noisy(LABELS, 10, share, seed=3)
    assert (labels != LABELS).sum() == round(share * 9_000)
    assert labels.dtype == torch.int64 and labels.min() >= 0 and labels.max() < 10
    assert torch.equal(LABELS, torch.arange(9_000) % 10), "the clean ones are not written into"


def test_a_wrong_label_is_any_other_class_alike() -> None:
    shift = (noisy(LABELS, 10, 0.9, seed=0) - LABELS) % 10
    counts = shift.bincount(minlength=10)
    assert counts[0] == 900 and (counts[1:] - 900).abs().max() < 5 * 900**0.5, "five standard deviations"


def test_a_smaller_share_is_part_of_a_larger_one_and_another_seed_is_another_draw() -> None:
    few, many, other = noisy(LABELS, 10, 0.2, 1), noisy(LABELS, 10, 0.6, 1), noisy(LABELS, 10, 0.2, 2)
    wrong = few != LABELS
    assert torch.equal(few[wrong], many[wrong])
    assert not torch.equal(wrong, other != LABELS)


def test_the_draws_are_pinned() -> None:
    """They are part of what `NUMERICS` promises."""
    assert noisy(torch.zeros(12, dtype=torch.int64), 10, 0.5, 0).tolist() == PINNED


PINNED = [2, 0, 1, 0, 2, 0, 0, 3, 0, 3, 0, 3]


def test_a_task_of_one_class_has_no_other_one() -> None:
    with pytest.raises(ConfigError, match=r"^label_noise: 0\.2: the task has 1 class"):
        noisy(torch.zeros(10, dtype=torch.int64), 1, 0.2, 0)


def test_every_row_trains_on_its_own_labels_and_all_are_tested_on_clean_ones() -> None:
    rows = [config(seed=0), config(seed=0, label_noise=0.4), config(seed=1, label_noise=0.4, val_fraction=0.0)]
    stack = stack_of(*rows)
    clean = digits(Path(), 0.0)
    steps = list(mini_batches(stack, epochs=1))
    labels = torch.cat([labels for _, _, _, labels in steps], dim=1)
    order = torch.cat(list(stack.task.order([0, 0, 1], 1, 64).split(64, dim=1)), dim=1)
    true = clean.train.targets[clean.train.positions(order)]
    assert (labels != true).sum(1).tolist() == [0, 575, 575]
    assert torch.equal(stack.task.test.targets, clean.test.targets)
    again = torch.cat([labels for _, _, _, labels in mini_batches(stack, epochs=2)], dim=1)
    in_place = torch.empty_like(labels).scatter_(1, order, labels)
    second = stack.task.order([0, 0, 1], 2, 64)
    assert torch.equal(again[:, labels.shape[1] :], in_place.gather(1, second)), "the same in every epoch"


def test_validation_and_test_labels_never_change() -> None:
    noiseless, stack = (stack_of(config(val_fraction=0.2, label_noise=share)) for share in (0.0, 0.9))
    for name in ("val", "test"):
        one, other = getattr(noiseless.task, name), getattr(stack.task, name)
        assert torch.equal(one.targets[one.rows], other.targets[other.rows])
    assert stack.task.noisy_labels.shape == (1, len(stack.task.train)) == (1, 1437 - 287)


def test_without_noise_the_task_is_the_shared_one() -> None:
    row = config()
    assert load_task(row).for_rows([row, row]).noisy_labels is None
    assert row.label_noise == 0.0 and "label_noise" not in row.canonical()


def test_a_row_without_noise_is_bitwise_the_same_beside_one_that_has_some() -> None:
    """And rows that differ in noise share a stack."""
    both = configs({}, {"label_noise": 0.6, "seed": 1})
    assert both[0].signature == both[1].signature
    beside, alone = list(train(both)), list(train([both[0]], width=2))
    assert by_row(beside, 0) == by_row(alone, 0)
    assert by_row(beside, 1)[-1]["train/top1"] < 0.6 < by_row(beside, 0)[-1]["train/top1"], "of noisy labels"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("width", [1, 2])
def test_noisy_labels_are_inside_the_captured_step_and_the_same_after_a_resumption(width: int, precision: str) -> None:
    rows = configs(*({"seed": n, "label_noise": 0.2 + 0.2 * n} for n in range(width)), precision=precision)
    whole, captured = list(train(rows)), list(train(rows, capture=Recorder()))
    first = list(itertools.islice(train(rows), 2))
    saved = []
    for report in first[-1]:
        buffer = io.BytesIO()
        torch.save(report.checkpoint(), buffer)
        saved.append(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    rest = list(train(rows, checkpoints=saved))
    for row in range(width):
        assert by_row(whole, row) == by_row(captured, row) == by_row(first + rest, row)


def test_augmented_images_have_noisy_labels_too(tmp_path: Path) -> None:
    mini_cifar.write_archives(tmp_path)
    values = {**TINY, "task": "tests.support.mini_cifar:cifar10", "batch_size": 80, "label_noise": 0.5}
    row = TrialConfig.parse(values)
    stack_task = load_task(row, tmp_path).for_rows([row])
    order = torch.arange(80).unsqueeze(0)
    _, labels = stack_task.mini_batch(order, torch.zeros(1, 80, 5, dtype=torch.int16), "crop+flip")
    assert (labels[0] != stack_task.train.targets).sum() == 40


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), "much"])
def test_a_share_is_at_least_0_and_below_1(share: object) -> None:
    with pytest.raises(ConfigError, match=r"^label_noise: "):
        configs({"label_noise": share})


def test_tasks_without_class_labels_refuse_it_in_one_line(lab: Path) -> None:
    ridge = {"task": "ridge", "model": "linear", "optimizer": "usam", "scheduler": "polyak", "rho": 0.1}
    with pytest.raises(ConfigError, match=r"^label_noise: task 'ridge' does not use it \(used by task: digits, cifar"):
        TrialConfig.parse({**ridge, "batch_size": 10, "label_noise": 0.2})
    with pytest.raises(ConfigError, match=r"^label_noise: task 'my_lab.counts:counts' does not use it"):
        own(task="my_lab.counts:counts", label_noise=0.2)
    (lab / "targets.py").write_text(NUMBERS)
    with pytest.raises(ConfigError, match="declares the use of label_noise, but a Regression has no class labels"):
        load_task(own(task="targets:numbers", batch_size=4))


NUMBERS = """
import torch
from polysweep import Regression, declare, train_val_test

@declare(uses={"label_noise": 0.0})
def numbers(data, val_fraction):
    return Regression(*train_val_test(torch.arange(40.0).view(20, 2), torch.arange(20.0), val_fraction))
"""
