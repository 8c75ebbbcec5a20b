"""What the benchmarks compare with: a CIFAR-shaped epoch written the usual way, and data of CIFAR's shape and size.

ResNet with separate activations, torchvision transforms in a DataLoader, the authors' optimizer `sam-sps`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sam_sps import SAM_SPS
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms import functional as TF

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.models import Block, ResNet
from polysweep.trainer.streams import epoch_order
from polysweep.trainer.tasks.augmentation import epoch_draws
from polysweep.trainer.tasks.cifar import ARRAYS, CHECKSUMS, CIFAR10, MEAN, STD


class UsualBlock(Block):
    """The same block with `F.relu` and `+`, as most code has it."""

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.stride != 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.pad:
            x = F.pad(x, (0, 0, 0, 0, self.pad // 2, self.pad - self.pad // 2))
        return F.relu(out + x)


class UsualResNet(ResNet):
    """ResNet-20 of usual blocks."""

    def __init__(self) -> None:
        super().__init__((3, 32, 32), 10, blocks=3)
        for block in self.blocks:
            block.__class__ = UsualBlock

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.linear(self.blocks(F.relu(self.bn(self.conv(x)))).mean((2, 3))))


def write_cifar_shaped(data: Path) -> None:
    """Random images in the number and shape of CIFAR-10, where `trainer.tasks.cifar` keeps what it has decoded."""
    folder = data / f"{CIFAR10.name}-decoded-1"
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    sums = {}
    for name in ARRAYS:
        count = 50_000 if name.startswith("train") else 10_000
        array = np.arange(count, dtype=np.int64) % 10
        if name.endswith("images"):
            array = random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        np.save(folder / f"{name}.npy", array)
        sums[name] = zlib.crc32(array.data)
    (folder / CHECKSUMS).write_text(json.dumps(sums))


class Drawn(Dataset[Any]):
    """An epoch's images in order, transformed by torchvision with the draws of our stream: position, (image, label)."""

    def __init__(self, config: TrialConfig, images: Tensor, labels: Tensor, count: int) -> None:
        self._images, self._labels = images.numpy(), labels
        self._order = epoch_order([config.seed], 1, count)[0]
        self._draws = epoch_draws([config.seed], 1, count, (3, 32, 32))[0]

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        at = int(self._order[index])
        top, left, mirrored = (int(value) for value in self._draws[index, :3])
        image = TF.crop(TF.pad(Image.fromarray(self._images[at]), [4]), top, left, 32, 32)
        if mirrored:
            image = TF.hflip(image)
        return TF.normalize(TF.to_tensor(image), list(MEAN), list(STD)), self._labels[at]


class Random(Dataset[Any]):
    """The training set under the usual `transforms.Compose`."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self._images, self._labels = images.numpy(), labels
        self._transform = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._transform(Image.fromarray(self._images[index])), self._labels[index]


def loader(dataset: Dataset[Any], batch_size: int, workers: int, *, shuffle: bool) -> DataLoader[Any]:
    """A DataLoader as everybody writes it."""
    return DataLoader(dataset, batch_size=batch_size, shuffle=shuffle, num_workers=workers, pin_memory=False)


def optimizer_of(module: nn.Module, config: TrialConfig) -> SAM_SPS:
    """The authors' optimizer with the config's settings."""
    return SAM_SPS(
        module.parameters(),
        weight_decay=config.weight_decay,
        rho=config.rho,
        lambd=1.0 if config.optimizer == "sam" else 0.0,
        gamma_b=config.gamma_b,
    )


def steps(
    module: nn.Module, optimizer: SAM_SPS, batches: Iterator[tuple[Tensor, Tensor]], device: str = "cpu"
) -> Iterator[float]:
    """Train on every mini-batch; yields its loss at x."""
    for images, labels in batches:
        images, labels = images.to(device), labels.to(device)  # noqa: PLW2901
        seen: list[Tensor] = []
        optimizer.step(closure_of(module, images, labels, seen))
        yield seen[0].item()


def closure_of(module: nn.Module, images: Tensor, labels: Tensor, seen: list[Tensor]) -> Callable[[], Tensor]:
    """A closure that remembers its losses: at x, then at e."""

    def closure() -> Tensor:
        loss = F.cross_entropy(module(images), labels)
        loss.backward()
        seen.append(loss.detach())
        return loss

    return closure
