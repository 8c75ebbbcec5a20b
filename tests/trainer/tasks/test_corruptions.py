"""Corrupted images, and the accuracy on them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from polysweep.trainer.components.corruptions import ALL, Corruption, parse
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import CORRUPTIONS, SEVERITIES
from polysweep.trainer.stack.oracles import ModuleOracle
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.task import Rows
from polysweep.trainer.tasks.corruptions import BLOCK, accuracies, corrupt
from polysweep.trainer.tasks.digits import digits
from polysweep.trainer.tasks.samples import train_val_test
from polysweep.trainer.tasks.supervised import Regression
from tests.support.stacks import config, stack_of

EVERY = pytest.mark.parametrize("corruption", ALL, ids=lambda corruption: corruption.metric)


def pictures(count: int, side: int = 32, channels: int = 3, top: int = 255) -> Tensor:
    values = torch.randint(top + 1, (count, side, side, channels), generator=torch.Generator().manual_seed(0))
    return values.to(torch.uint8)


def rows_of(stack: Stack) -> Rows:
    return Rows(stack.theta, stack.buffers)


def oracle_of(stack: Stack) -> ModuleOracle:
    oracle, _ = stack.task.oracle_and_monitor(stack.configs, {"device": stack.device, "dtype": stack.dtype})
    assert isinstance(oracle, ModuleOracle)
    return oracle


@EVERY
def test_the_same_images_come_of_the_same_images_whatever_else_is_drawn(corruption: Corruption) -> None:
    clean = pictures(BLOCK + 3, side=8, channels=1, top=16)
    corrupted = corrupt(clean, corruption, 16.0)
    assert corrupted.dtype == torch.uint8 and corrupted.shape == clean.shape and corrupted.max() <= 16
    torch.manual_seed(1)
    assert torch.equal(corrupted, corrupt(clean, corruption, 16.0))
    assert torch.equal(corrupted[:5], corrupt(clean[:5], corruption, 16.0)), "by its place in the set alone"


@pytest.mark.parametrize(("side", "channels", "top"), [(32, 3, 255), (8, 1, 16)], ids=["cifar", "digits"])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_severer_corruption_is_farther_from_the_clean_images(name: str, side: int, channels: int, top: int) -> None:
    clean = pictures(64, side, channels, top)
    distances = [
        (corrupt(clean, Corruption(name, severity), top).double() - clean).square().mean().item()
        for severity in SEVERITIES
    ]
    assert distances == sorted(set(distances)) and distances[0] > 0


@pytest.mark.parametrize("name", ["blur", "contrast", "occlusion"])
def test_an_image_of_one_grey_stays_as_it_is(name: str) -> None:
    grey = torch.full((2, 8, 8, 3), 77, dtype=torch.uint8)
    assert all(torch.equal(corrupt(grey, Corruption(name, severity), 255.0), grey) for severity in SEVERITIES)


def test_contrast_moves_pixels_towards_the_mean_of_image_and_channel() -> None:
    image = torch.tensor([[0, 100], [100, 200]], dtype=torch.uint8).view(1, 2, 2, 1)  # mean 100
    assert corrupt(image, parse("contrast-2"), 255.0).flatten().tolist() == [50, 100, 100, 150]
    assert corrupt(image, parse("contrast-5"), 255.0).flatten().tolist() == [85, 100, 100, 115]


@pytest.mark.parametrize(("size", "sides"), [((8, 8), (1, 2, 3, 4, 5)), ((32, 48), (4, 8, 12, 16, 20))])
def test_occlusion_changes_a_square_of_pixels_in_every_image(size: tuple[int, int], sides: tuple[int, ...]) -> None:
    clean = torch.full((40, *size, 1), 10, dtype=torch.uint8)
    clean[:, 0] = 255  # the mean is another value than every pixel's
    for severity, side in zip(SEVERITIES, sides, strict=True):
        changed = (corrupt(clean, Corruption("occlusion", severity), 255.0) != clean).squeeze(3)
        assert changed.sum((1, 2)).tolist() == [side**2] * 40
        assert changed.any(2).sum(1).tolist() == changed.any(1).sum(1).tolist() == [side] * 40


def test_blur_spreads_a_point_as_a_gaussian() -> None:
    point = torch.zeros(1, 31, 31, 1, dtype=torch.uint8)
    point[0, 15, 15] = 250
    blurred = corrupt(point, parse("blur-5"), 255.0).double().squeeze()
    # std 1: exp(-d^2 / 2) over its sum for all d is 0.39894 in the middle and 0.24197 beside it
    assert blurred[15, 15] == round(250 * 0.39894**2) and blurred[15, 14] == round(250 * 0.39894 * 0.24197)
    assert torch.equal(blurred, blurred.T) and torch.equal(blurred, blurred.flip(0))


def test_noise_has_the_standard_deviation_of_its_severity() -> None:
    grey = torch.full((BLOCK, 32, 32, 3), 128, dtype=torch.uint8)
    noise = corrupt(grey, parse("noise-5"), 255.0).double() - 128
    # 1.6 million draws, none of them cut off: 0.2 % is more than three standard errors; rounding adds 1/12
    assert noise.std().item() == pytest.approx((25.5**2 + 1 / 12) ** 0.5, rel=2e-3)
    assert abs(noise.mean().item()) < 0.1, "five standard errors"


def test_an_image_is_corrupted_within_its_own_range() -> None:
    """Digits have values 0 to 16: noise of the range 255 would drown them."""
    clean = digits(Path(), 0.0).test.inputs
    assert (corrupt(clean, parse("noise-1"), 16.0).double() - clean).abs().mean() < 1


@pytest.mark.parametrize("rows", [1, 3])
def test_accuracies_are_those_of_the_rows_on_corrupted_images(rows: int) -> None:
    stack = stack_of(*[config(seed=seed) for seed in range(rows)])
    task, oracle = stack.task, oracle_of(stack)
    columns = accuracies(task, oracle, rows_of(stack), [parse("noise-5"), parse("blur-1")])
    assert list(columns) == ["test/noise-5", "test/blur-1"]
    corrupted = corrupt(task.test.inputs[task.test.rows], parse("noise-5"), 16.0)
    right = oracle.evaluate(rows_of(stack), task.inputs(corrupted)).argmax(2) == task.test.targets[task.test.rows]
    assert torch.equal(columns["test/noise-5"], right.double().mean(1))
    assert columns["test/blur-1"].shape == (rows,)


def test_a_task_without_images_is_refused() -> None:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    stack = stack_of(config())
    with pytest.raises(UserError, match=r"corruptions are of images: the task's inputs are none"):
        accuracies(Regression(*train_val_test(x, x[:, 0])), oracle_of(stack), rows_of(stack), [parse("noise-1")])
