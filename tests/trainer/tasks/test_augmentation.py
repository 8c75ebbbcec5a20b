"""Augmentation against torchvision's own operations on the same draws."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from polysweep.trainer.streams import epoch_order
from polysweep.trainer.tasks.augmentation import cut_out, epoch_draws
from tests.support import mini_cifar
from tests.support.cifar_images import data as data
from tests.support.cifar_images import torchvision_image


@pytest.mark.parametrize("augmentation", ["crop+flip", "crop+flip+cutout"])
def test_every_pixel_of_every_row_is_torchvisions_on_the_same_draws(data: Path, augmentation: str) -> None:
    task = mini_cifar.cifar10(data, 0.1).to(torch.device("cpu"), torch.float32)
    size = len(task.train)
    order, draws = epoch_order([3, 4], 2, size), epoch_draws([3, 4], 2, size, (3, 32, 32))
    images, labels = task.mini_batch(order, draws, augmentation)
    assert images.shape == (2, size, 3, 32, 32) and labels.shape == (2, size)
    cutout = 16 if augmentation.endswith("cutout") else 0
    for row in range(2):
        for n in range(size):
            at = int(task.train.positions(order[row, n]))
            assert torch.equal(images[row, n], torchvision_image(task, at, draws[row, n], cutout))
            assert labels[row, n] == task.train.labels[at]


def test_cutout_is_cut_off_at_the_edge() -> None:
    images = torch.ones(3, 1, 8, 8)
    draws = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 4, 4], [0, 0, 0, 7, 7]], dtype=torch.int16)
    assert (cut_out(images, draws, 4) == 0).sum((1, 2, 3)).tolist() == [4, 16, 9]


def test_draws_are_uniform_named_and_shared_by_rows_of_one_seed() -> None:
    draws = epoch_draws([0, 0, 1], 1, 20_000, (3, 32, 32))
    assert draws.shape == (3, 20_000, 5)
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], epoch_draws([0], 2, 20_000, (3, 32, 32))[0])
    for column, end in enumerate((9, 9, 2, 32, 32)):
        counts = draws[0, :, column].long().bincount(minlength=end)
        assert len(counts) == end
        assert (counts - 20_000 / end).abs().max() < 5 * (20_000 / end) ** 0.5, "five standard deviations"


def test_draws_are_pinned() -> None:
    """They are part of what `NUMERICS` promises."""
    assert epoch_draws([0], 1, 50_000, (3, 32, 32))[0, :2].tolist() == PINNED_DRAWS


PINNED_DRAWS = [[0, 3, 0, 6, 25], [3, 1, 0, 21, 14]]


def test_cutout_never_asks_the_device_for_a_value() -> None:
    images, draws = torch.zeros(4, 3, 32, 32, device="meta"), torch.zeros(4, 5, dtype=torch.int16, device="meta")
    assert cut_out(images, draws, 16).is_meta
