"""Labelled images that stay on the device, and their normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from polysweep.trainer.tasks.samples import Samples


class Images(Samples):
    """Labelled images: `images` (N, H, W, C) uint8, `labels` (N,) int64, and `rows` as of any `Samples`."""

    def __init__(self, images: Tensor, labels: Tensor, rows: Tensor | None = None) -> None:
        super().__init__(images, labels, rows)

    @property
    def images(self) -> Tensor:
        """(N, H, W, C) uint8."""
        return self.inputs

    @property
    def labels(self) -> Tensor:
        """(N,) int64."""
        return self.targets


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
