"""Named random streams, resident images and the mini-batches of a stack.

A stream is derived from a trial's seed and the stream's own name alone: trials that differ only in rho start from
the same weights and see the same batches (paired seeds), and a trial continued at epoch t draws what the
uninterrupted one drew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def stream_seed(seed: int, name: str, *position: int) -> int:
    """A 63-bit seed for the stream `name` at `position` (for example the epoch) of the trial seed `seed`."""
    text = "/".join([str(seed), name, *map(str, position)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, name: str, *position: int) -> torch.Generator:
    """A CPU generator for that stream; the draws are the same on every device."""
    return torch.Generator().manual_seed(stream_seed(seed, name, *position))


@dataclass(frozen=True)
class Images:
    """Labelled images that stay on the device: `images` (N, C, H, W) uint8, `labels` (N,) int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Images:
        """The same images on `device`."""
        return Images(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Normalisation:
    """x -> (x - mean) / std per channel, from uint8 to the training precision; both (C, 1, 1)."""

    mean: Tensor
    std: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        """(..., C, H, W) uint8 -> the same shape in the precision of `mean`."""
        return images.to(self.mean.dtype).sub_(self.mean).div_(self.std)

    def to(self, device: torch.device, dtype: torch.dtype) -> Normalisation:
        """The same constants on `device` in `dtype`."""
        return Normalisation(self.mean.to(device, dtype), self.std.to(device, dtype))


def epoch_order(seeds: Sequence[int], epoch: int, size: int) -> Tensor:
    """Each row's own order of the training set in `epoch` (1, 2, ...): (K, size) int64.

    Rows of one seed share their order.
    """
    orders = {seed: torch.randperm(size, generator=stream(seed, "order", epoch)) for seed in set(seeds)}
    return torch.stack([orders[seed] for seed in seeds])


def batches(data: Images, normalise: Normalisation, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The mini-batches of an epoch: images (K, b, C, H, W), labels (K, b); the last b may be smaller."""
    order = order.to(data.labels.device)
    for rows in order.split(batch_size, dim=1):
        yield normalise(data.images[rows]), data.labels[rows]
