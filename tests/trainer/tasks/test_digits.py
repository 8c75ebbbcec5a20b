"""scikit-learn's digits, and their split."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from polysweep.trainer.tasks.digits import digits
from polysweep.trainer.tasks.images import Images


def whole(data: Images) -> tuple[Tensor, Tensor]:
    """All images and labels of a set."""
    ((images, labels),) = data.chunks(len(data))
    return images, labels


def test_digits_are_scikit_learns() -> None:
    task, bunch = digits(Path(), 0.0), load_digits()
    (train, _), (test, labels) = whole(task.train), whole(task.test)
    assert sorted(map(bytes, torch.cat([train, test]).numpy())) == sorted(
        image.tobytes() for image in bunch.images.astype("uint8")
    )
    by_image = {image.tobytes(): label for image, label in zip(bunch.images.astype("uint8"), bunch.target, strict=True)}
    for image, label in zip(test.numpy(), labels.tolist(), strict=True):
        assert by_image[image.tobytes()] == label


def test_digits_are_split_once_and_for_all_by_class() -> None:
    task, again = digits(Path(), 0.0), digits(Path(), 0.0)
    assert (len(task.train), len(task.test), task.val) == (1437, 360, None)
    (train_images, train), (test_images, test) = whole(task.train), whole(task.test)
    assert torch.equal(test_images, whole(again.test)[0])
    share = test.bincount() / (test.bincount() + train.bincount())
    assert (share - 360 / 1797).abs().max() < 0.006, "to within one image per class"
    assert test[:10].tolist() == [2, 4, 6, 7, 8, 0, 2, 5, 0, 5]
    images = task.normalise(train_images).double()
    assert abs(images.mean().item()) < 1e-6 and abs(images.std().item() - 1) < 1e-4


def test_held_out_images_come_from_the_training_set_by_class() -> None:
    all_of_it, split = digits(Path(), 0.0), digits(Path(), 0.1)
    assert split.val is not None
    assert len(split.train) + len(split.val) == len(all_of_it.train)
    assert torch.equal(whole(split.test)[0], whole(all_of_it.test)[0])
    assert whole(split.val)[1].bincount().min() >= 13
