"""Which K and which share are chosen from a measurement."""

from __future__ import annotations

import pytest

from polysweep.trainer.curve import Curve, Width, best_share

GB = 10**9


def curve(*seconds: float, memory: int = 0, free: int = GB) -> Curve:
    """Of K = 1, 2, 4, ..."""
    return Curve(tuple(Width(2**n, each, 2**n * memory) for n, each in enumerate(seconds)), free)


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ((1.0,), 1),
        ((1.0, 0.96), 1),  # within 5 %
        ((1.0, 0.94), 2),
        ((1.0, 0.7, 0.5, 0.49), 4),
        ((1.0, 1.4), 1),
        ((1.0, 1.1, 0.6, 0.4), 8),  # a dip on the way
    ],
)
def test_the_least_width_within_five_percent_of_the_fastest_is_best(seconds: tuple[float, ...], best: int) -> None:
    assert curve(*seconds).best(1.0) == best


@pytest.mark.parametrize(("share", "best"), [(1.0, 4), (0.5, 2), (0.25, 1), (0.01, 1)])
def test_a_quarter_of_the_share_of_the_memory_stays_free(share: float, best: int) -> None:
    assert curve(1.0, 0.7, 0.5, memory=GB // 6).best(share) == best


@pytest.mark.parametrize(
    ("rates", "share"),
    [({1: 10.0}, 1.0), ({1: 10.0, 2: 10.4}, 1.0), ({1: 10.0, 2: 19.0, 4: 19.5}, 0.5), ({1: 10.0, 2: 8.0}, 1.0)],
)
def test_the_largest_share_within_five_percent_of_the_fastest_is_best(rates: dict[int, float], share: float) -> None:
    assert best_share(rates) == share


def test_between_measured_widths_memory_is_in_proportion() -> None:
    measured = curve(1.0, 0.7, 0.5, memory=GB // 6)
    assert measured.fits(4, 1.0) and not measured.fits(5, 1.0) and not measured.fits(3, 0.5)
