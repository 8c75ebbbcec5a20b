"""Which K and which share of a device to take from what was measured of them. Imports no torch: a plan reads it too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

WORTH: Final = 1.05
"""A wider stack, or a smaller share, is worth it if it is faster by more than this factor."""
HEADROOM: Final = 0.75
"""Of the free memory, what a stack may need."""


class Width(NamedTuple):
    """What was measured of a stack of K = `width`: seconds per row and step, and bytes at the peak."""

    width: int
    seconds: float
    memory: int


@dataclass(frozen=True)
class Curve:
    """The widths that were measured, and the bytes that were free before."""

    widths: tuple[Width, ...]
    free: int

    def best(self, share: float) -> int:
        """The least K within 5 % of the fastest, among those that fit into a share of the memory."""
        fitting = [one for one in self.widths if self.fits(one.width, share)] or self.widths[:1]
        fastest = min(one.seconds for one in fitting)
        return min(one.width for one in fitting if one.seconds <= WORTH * fastest)

    def fits(self, width: int, share: float) -> bool:
        """Whether a stack of this K leaves a quarter of a share of the memory free; between two K in proportion."""
        nearest = min(self.widths, key=lambda one: abs(one.width - width))
        return nearest.memory / nearest.width * width <= HEADROOM * share * self.free


def best_share(rates: Mapping[int, float]) -> float:
    """The largest share, 1/count, whose stacks together are within 5 % of the fastest."""
    fastest = max(rates.values())
    return 1 / min(count for count, rate in rates.items() if rate * WORTH >= fastest)
