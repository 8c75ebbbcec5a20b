"""The miniature data sets as torchvision reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import functional as TF

from polysweep.trainer.tasks.cifar import MEAN, STD
from polysweep.trainer.tasks.classification import Classification
from tests.support import mini_cifar

CIFAR = {
    "task": "tests.support.mini_cifar:cifar10", "model": "mlp", "optimizer": "usam", "scheduler": "polyak", "rho": 0.1,
    "batch_size": 32, "epochs": 2,
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with the archives of the miniature."""
    mini_cifar.write_archives(tmp_path / "data")
    return tmp_path / "data"


def torchvision_image(task: Classification, at: int, draws: Tensor, cutout: int) -> Tensor:
    """The image under torchvision's operations with these draws."""
    top, left, mirrored, row, column = draws.tolist()
    image = TF.crop(TF.pad(Image.fromarray(task.train.images[at].numpy()), [4]), top, left, 32, 32)
    image = TF.normalize(TF.to_tensor(TF.hflip(image) if mirrored else image), list(MEAN), list(STD))
    if not cutout:
        return image
    up, down = max(row - cutout // 2, 0), min(row + cutout // 2, 32)
    first, last = max(column - cutout // 2, 0), min(column + cutout // 2, 32)
    return TF.erase(image, up, first, down - up, last - first, torch.zeros(()))
