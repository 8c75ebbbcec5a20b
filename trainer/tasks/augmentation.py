"""Random crop, flip and cutout of whole mini-batches on the device, from draws of the trial's own stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from polysweep.trainer.streams import stream

PADDING: Final = 4
"""Zero pixels on each side before a random crop back to the image's own size."""


def epoch_draws(seeds: Sequence[int], epoch: int, size: int, shape: Sequence[int]) -> Tensor:
    """What augmentation draws in `epoch` for the n-th image that a row sees: (K, size, 5) int16.

    Uniform and independent: top and left edge of the crop in the padded image (0 .. 8), whether it is mirrored, row
    and column of the centre of the cutout. `shape` is (C, H, W). Rows of one seed share their draws.
    """
    drawn = {seed: _draws(seed, epoch, size, shape) for seed in set(seeds)}
    return torch.stack([drawn[seed] for seed in seeds])


def _draws(seed: int, epoch: int, size: int, shape: Sequence[int]) -> Tensor:
    generator = stream(seed, "augmentation", epoch)
    ends = (2 * PADDING + 1, 2 * PADDING + 1, 2, shape[1], shape[2])
    columns = [torch.randint(end, (size,), generator=generator, dtype=torch.int16) for end in ends]
    return torch.stack(columns, dim=1)


def crop_and_flip(images: Tensor, draws: Tensor) -> Tensor:
    """RandomCrop(size, padding=4) and RandomHorizontalFlip: (n, H, W, C) uint8, (n, 5) -> (n, H, W, C)."""
    count, height, width, channels = images.shape
    padded = F.pad(images, (0, 0, PADDING, PADDING, PADDING, PADDING))
    stride = width + 2 * PADDING
    top, left, mirrored = (draws[:, column].to(torch.int64).view(-1, 1) for column in range(3))
    across = torch.arange(width, device=images.device)
    column = left + torch.where(mirrored > 0, across.flip(0), across)
    line = top + torch.arange(height, device=images.device)
    first = torch.arange(count, device=images.device) * ((height + 2 * PADDING) * stride)
    pixel = first.view(-1, 1, 1) + (line * stride).unsqueeze(2) + column.unsqueeze(1)
    return padded.view(-1, channels).index_select(0, pixel.view(-1)).view(images.shape)


def cut_out(images: Tensor, draws: Tensor, length: int) -> Tensor:
    """Cutout (DeVries and Taylor 2017): zero a square of side `length`, cut off at the image's edge.

    `images` (n, C, H, W) are normalised, so zero is the mean. The square covers the lines from centre - length // 2 up
    to but not including centre + length // 2, columns likewise.
    """
    half = length // 2

    def covered(size: int, centre: Tensor) -> Tensor:
        distance = torch.arange(size, device=images.device) - centre.to(torch.int64).view(-1, 1)
        return (distance >= -half) & (distance < half)

    lines, columns = covered(images.shape[2], draws[:, 3]), covered(images.shape[3], draws[:, 4])
    return images.masked_fill_((lines.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1), 0)
