"""Images and their normalisation, against torchvision."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from torchvision.transforms import functional as TF

from polysweep.trainer.tasks.cifar import MEAN, STD
from tests.support import mini_cifar
from tests.support.cifar_images import data as data


def test_without_augmentation_an_image_is_torchvisions_normalised_one(data: Path) -> None:
    task = mini_cifar.cifar10(data, 0.0).to(torch.device("cpu"), torch.float32)
    images, _ = task.mini_batch(torch.arange(80).view(1, 80), None, "none")
    for n in range(80):
        expected = TF.normalize(TF.to_tensor(Image.fromarray(task.train.images[n].numpy())), list(MEAN), list(STD))
        assert torch.equal(images[0, n], expected)
    assert images[0].is_contiguous(memory_format=torch.channels_last), "the layout that convolutions want on a CPU"
