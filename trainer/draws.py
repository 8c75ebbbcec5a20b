"""Random numbers of every row, drawn on the device as hashes of their place: from the row's seed and the step.

They are the same whatever K is, and need no state: a resumed trial draws what the uninterrupted one drew.
"""

from __future__ import annotations

import torch
from torch import Tensor


def step_keys(seeds: Tensor, step: Tensor) -> Tensor:
    """The rows' keys of step t, (): seeds (K,) int64 -> (K,) int64."""
    return mixed(seeds + mixed(step * STRIDE))


def places(count: int, device: torch.device) -> Tensor:
    """What a key is added to, to draw `count` numbers: (count,) int64."""
    return torch.arange(count, device=device) * STRIDE


def threshold(probability: float) -> int:
    """A hash is at or above it with probability 1 - `probability`, which is below 1."""
    return int(probability * 2**64) - 2**63


def bernoulli(keys: Tensor, limits: Tensor, count: int) -> Tensor:
    """True where a hash is at or above the row's limit, a `threshold`: keys and limits (K,) int64 -> (K, count)."""
    return mixed(places(count, keys.device) + mixed(keys).unsqueeze(1)) >= limits.unsqueeze(1)


def mixed(bits: Tensor) -> Tensor:
    """Every integer as a hash of itself, int64 -> int64: the finaliser of Steele et al. 2014, SplitMix."""
    bits = (bits ^ (bits >> 30 & 2**34 - 1)) * _FIRST
    bits = (bits ^ (bits >> 27 & 2**37 - 1)) * _SECOND
    return bits ^ (bits >> 31 & 2**33 - 1)


STRIDE, _FIRST, _SECOND = (number - 2**64 for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""SplitMix's increment and multipliers, as signed integers."""
