"""Corrupted test sets, the same for every trial, seed and device, and the accuracy of rows on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from polysweep.trainer.components.corruptions import Corruption
from polysweep.trainer.errors import UserError
from polysweep.trainer.stack.oracles import ModuleOracle
from polysweep.trainer.streams import stream
from polysweep.trainer.task import Rows, Task
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.held_out import outputs_in_chunks
from polysweep.trainer.tasks.images import Images

NOISE_STD: Final = (0.04, 0.06, 0.08, 0.09, 0.10)
"""Of the images' range, by severity: Gaussian noise of CIFAR-10-C, Hendrycks and Dietterich 2019 (arXiv 1903.12261)."""
BLUR_STD: Final = (0.4, 0.6, 0.7, 0.8, 1.0)
"""Pixels of an image of up to 32, in proportion to its shorter side beyond that: Gaussian blur of CIFAR-10-C."""
BLUR_SIDE: Final = 32
CONTRAST: Final = (0.75, 0.5, 0.4, 0.3, 0.15)
"""What is left of a pixel's distance to the mean of its image and channel: contrast of CIFAR-10-C."""
OCCLUDED: Final = (1 / 8, 2 / 8, 3 / 8, 4 / 8, 5 / 8)
"""Side of the square, of the image's shorter side: severity 4 covers what Cutout does on CIFAR-10."""

BLOCK: Final = 512
"""Images whose draws come from one stream."""


def accuracies(task: Task, oracle: ModuleOracle, rows: Rows, corruptions: Sequence[Corruption]) -> dict[str, Tensor]:
    """By metric name `test/<corruption>-<severity>`, the accuracy (K,) of the rows on the corrupted test set.

    A fraction of the images, with running statistics. Every trial, whatever its seed, sees the same images. Raises
    `UserError` if the task is not of images.
    """
    if not isinstance(task, Classification) or task.normalise is None:
        raise UserError("corruptions are of images: the task's inputs are none; expected one of polysweep.Images")
    clean = task.test
    at = slice(None) if clean.rows is None else clean.rows
    images, labels, scale = clean.inputs[at], clean.targets[at], float(clean.inputs.max())
    columns = {}
    for corruption in corruptions:
        corrupted = Images(corrupt(images, corruption, scale), labels)
        hits = [task.top(*chunk)[..., 0].sum(1) for chunk in outputs_in_chunks(task, oracle, rows, corrupted)]
        columns[corruption.metric] = torch.stack(hits).sum(0).double() / len(labels)
    return columns


def corrupt(images: Tensor, corruption: Corruption, scale: float) -> Tensor:
    """(N, H, W, C) uint8 of values 0 to `scale` -> the same shape, dtype and device.

    The n-th image's draws follow from n alone and are made on the CPU, so that every device has the same.
    """
    change, severity = CHANGES[corruption.name], corruption.severity
    blocks = [
        change(block.double(), severity, scale, stream(0, f"corruption/{corruption.name}", number))
        for number, block in enumerate(images.split(BLOCK))
    ]
    return torch.cat(blocks).round_().clamp_(0, scale).to(images)


def _noise(images: Tensor, severity: int, scale: float, draws: torch.Generator) -> Tensor:
    """x + std scale z, z standard normal."""
    normal = torch.randn(BLOCK, *images.shape[1:], generator=draws)[: len(images)]
    return images + NOISE_STD[severity - 1] * scale * normal.to(images)


def _blur(images: Tensor, severity: int, scale: float, draws: torch.Generator) -> Tensor:  # noqa: ARG001
    """Mean of an image's pixels by exp(-distance^2 / (2 std^2)), which add up to 1 at the edges too."""
    height, width = images.shape[1:3]
    std = BLUR_STD[severity - 1] * max(1.0, min(height, width) / BLUR_SIDE)

    def weights(size: int) -> Tensor:
        at = torch.arange(size, dtype=images.dtype, device=images.device)
        return (-(at - at.unsqueeze(1)).square() / (2 * std**2)).softmax(1)

    return torch.einsum("yh,nhwc,xw->nyxc", weights(height), images, weights(width))


def _contrast(images: Tensor, severity: int, scale: float, draws: torch.Generator) -> Tensor:  # noqa: ARG001
    """mean + factor (x - mean), the mean that of the image and channel."""
    mean = images.mean((1, 2), keepdim=True)
    return mean + CONTRAST[severity - 1] * (images - mean)


def _occlusion(images: Tensor, severity: int, scale: float, draws: torch.Generator) -> Tensor:  # noqa: ARG001
    """A square anywhere within the image is the mean of the image and channel."""
    height, width = images.shape[1:3]
    side = max(1, round(OCCLUDED[severity - 1] * min(height, width)))
    places = torch.rand(BLOCK, 2, 1, generator=draws, dtype=torch.float64)[: len(images)].to(images)

    def covered(size: int, place: Tensor) -> Tensor:
        first = (place * (size - side + 1)).floor()
        at = torch.arange(size, device=images.device)
        return (at >= first) & (at < first + side)

    inside = covered(height, places[:, 0]).unsqueeze(2) & covered(width, places[:, 1]).unsqueeze(1)
    return torch.where(inside.unsqueeze(3), images.mean((1, 2), keepdim=True), images)


CHANGES: Final[Mapping[str, Callable[[Tensor, int, float, torch.Generator], Tensor]]] = {
    "noise": _noise,
    "blur": _blur,
    "contrast": _contrast,
    "occlusion": _occlusion,
}
"""By corruption: from images (n, H, W, C) float64, severity, their range and draws to changed ones."""
