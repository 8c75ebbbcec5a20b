"""Named random streams, and the order of an epoch.

A stream is derived from a trial's seed and the stream's own name alone: trials that differ only in rho start from
the same weights and see the same batches (paired seeds), and a trial continued at epoch t draws what the
uninterrupted one drew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def stream_seed(seed: int, name: str, *position: int) -> int:
    """A 63-bit seed for the stream `name` at `position` (for example the epoch) of the trial seed `seed`."""
    text = "/".join([str(seed), name, *map(str, position)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, name: str, *position: int) -> torch.Generator:
    """A CPU generator for that stream; the draws are the same on every device."""
    return torch.Generator().manual_seed(stream_seed(seed, name, *position))


def epoch_order(seeds: Sequence[int], epoch: int, size: int) -> Tensor:
    """Each row's own order of the training set in `epoch` (1, 2, ...): (K, size) int64.

    Rows of one seed share their order.
    """
    orders = {seed: torch.randperm(size, generator=stream(seed, "order", epoch)) for seed in set(seeds)}
    return torch.stack([orders[seed] for seed in seeds])
