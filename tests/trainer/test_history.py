"""What is read from a trial's history: stalled rows, older names, numbers for people."""

from __future__ import annotations

import pytest

from polysweep.trainer.history import is_accuracy, is_stalled, shown_number, with_current_names


@pytest.mark.parametrize(
    ("shares", "stalled"),
    [
        ([], False),
        ([1.0], True),
        ([0.0] * 9 + [1.0], True),  # a tenth of ten epochs is one
        ([0.0] * 10 + [1.0], False),  # of eleven it is rounded up
        ([0.0] * 9 + [1.0, 1.0], True),
        ([1.0] * 9 + [0.99], False),
        ([None], False),
    ],
)
def test_a_trial_is_stalled_if_no_step_of_its_last_tenth_moved_it(shares: list[float | None], stalled: bool) -> None:
    assert is_stalled([{"gamma/zero_share": share} for share in shares]) is stalled


def test_a_row_of_an_older_version_has_the_names_of_now_in_its_own_order() -> None:
    row = with_current_names({"epoch": 1, "sharpness": 0.25, "test/top1": 0.5})
    assert list(row.items()) == [("epoch", 1), ("ascent_gain", 0.25), ("test/top1", 0.5)]


def test_a_number_is_never_shown_as_zero_unless_it_is() -> None:
    numbers = (0.0, 0.5, -12.34567, 1e-3, 9.99e-4, -1e-12, 999999.0, 1e6, float("inf"))
    shown = ("0.0000", "0.5000", "-12.3457", "0.0010", "9.99e-04", "-1.00e-12", "999999.0000", "1.00e+06", "inf")
    assert tuple(map(shown_number, numbers)) == shown


def test_fractions_are_printed_in_percent() -> None:
    assert all(map(is_accuracy, ("val/top1", "test/top5", "test/ece", "test/noise-1", "last/test/occlusion-5")))
    assert not any(map(is_accuracy, ("test/loss", "distance", "test/noise", "mine/noise-level")))
