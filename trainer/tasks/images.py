"""Labelled images that stay on the device, and their normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Images:
    """Labelled images that stay on the device: `images` (N, H, W, C) uint8, `labels` (N,) int64.

    `rows` (n,) int64 picks those that belong to this set, so that a split copies no image; None is all of them.
    """

    images: Tensor
    labels: Tensor
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels if self.rows is None else self.rows)

    def first(self, count: int) -> Images:
        """The first `count` images of this set, or all if there are fewer."""
        return Images(self.images, self.labels, self.positions(torch.arange(min(count, len(self)))))

    def positions(self, order: Tensor) -> Tensor:
        """The indices into `images` of the `order`-th images of this set."""
        return order if self.rows is None else self.rows[order]

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images and labels in order, `size` at a time."""
        for at in torch.arange(len(self), device=self.labels.device).split(size):
            positions = self.positions(at)
            yield self.images[positions], self.labels[positions]

    def to(self, device: torch.device) -> Images:
        """The same images on `device`."""
        rows = None if self.rows is None else self.rows.to(device)
        return Images(self.images.to(device), self.labels.to(device), rows)


class Normalisation:
    """x -> (x / scale - mean) / std per channel, as ToTensor and Normalize of torchvision.

    `mean` and `std` are (C,); `scale` is 255 for a ToTensor that maps to [0, 1], 1 for none.
    """

    def __init__(self, mean: Tensor, std: Tensor, scale: float = 1.0) -> None:
        self.mean, self.std, self.scale = mean, std, scale
        self._tiled: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, images: Tensor) -> Tensor:
        """(..., H, W, C) uint8 -> (..., C, H, W) in the precision of `mean`, channels last in memory."""
        *lead, height, width, channels = images.shape
        if width not in self._tiled:  # constants as wide as a line of pixels: three times as fast as by channel
            self._tiled[width] = (self.mean.repeat(width), self.std.repeat(width))
        mean, std = self._tiled[width]
        lines = images.reshape(*lead, height, width * channels).to(mean.dtype)
        if self.scale != 1:
            lines = lines.div_(self.scale)
        lines = lines.sub_(mean).div_(std)
        if channels == 1:
            return lines.view(*lead, 1, height, width)
        return lines.view(*lead, height, width, channels).movedim(-1, -3)

    def to(self, device: torch.device, dtype: torch.dtype) -> Normalisation:
        """The same constants on `device` in `dtype`."""
        return Normalisation(self.mean.to(device, dtype), self.std.to(device, dtype), self.scale)
