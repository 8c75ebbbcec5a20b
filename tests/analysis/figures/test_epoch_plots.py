"""Plots over the epochs: which numbers are drawn, and in what unit."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from polysweep.analysis.figures.epoch_plots import plot_curves, plot_gamma, plot_shares


def history(**columns: list[float]) -> pd.DataFrame:
    """Two seeds of two epochs; of each column the values of one epoch, then those of the next."""
    return pd.DataFrame({"epoch": [1, 1, 2, 2], "scheduler": "polyak", **columns})


def ends_of(ax: Any) -> list[tuple[float, float]]:
    """By epoch the lower and the upper end of the only band."""
    (band,) = ax.collections
    corners = pd.DataFrame(band.get_paths()[0].vertices, columns=["epoch", "y"]).groupby("epoch")["y"]
    return list(zip(corners.min(), corners.max(), strict=True))


def test_a_curve_is_the_mean_in_percent_and_its_band_one_sample_std() -> None:
    ax = plot_curves(history(**{"test/top1": [0.5, 0.7, 0.9, 0.9]}), "test/top1", Figure().subplots())
    (line,) = ax.get_lines()
    assert list(line.get_xdata()) == [1, 2] and list(line.get_ydata()) == pytest.approx([60, 90])
    std = 100 * 0.2 / 2**0.5
    assert ends_of(ax) == [pytest.approx((60 - std, 60 + std)), pytest.approx((90, 90))]


def test_a_step_size_is_the_median_between_its_quantiles_on_a_log_axis_if_all_are_positive() -> None:
    ax = plot_gamma(history(**{"gamma/mean": [0.0, 10.0, 4.0, 4.0]}), Figure().subplots())
    assert list(ax.get_lines()[0].get_ydata()) == [5, 4]
    assert ends_of(ax) == [pytest.approx((1, 9)), pytest.approx((4, 4))] and ax.get_yscale() != "log"
    positive = plot_gamma(history(**{"gamma/mean": [1.0, 100.0, 4.0, 4.0]}), Figure().subplots())
    assert positive.get_yscale() == "log"


def test_shares_of_steps_are_drawn_of_lines_with_a_cap_alone() -> None:
    shares = {"gamma/cap_share": [0.25, 0.75, 1.0, 1.0], "gamma/zero_share": [0.0, 0.0, 0.0, 0.0]}
    ax = plot_shares(history(**shares), Figure().subplots())
    cap, zero = ax.get_lines()[:2]
    assert list(cap.get_ydata()) == [50, 100] and list(zero.get_ydata()) == [0, 0]
    assert (cap.get_linestyle(), zero.get_linestyle()) == ("-", ":")
    momo = plot_shares(history(**shares).assign(scheduler="momo"), Figure().subplots())
    assert len(momo.get_lines()) == len(ax.get_lines())
    at_zero = history(**dict(zip(shares, reversed(shares.values()), strict=True))).assign(scheduler="sps-plus")
    uncapped = plot_shares(at_zero, Figure().subplots())
    assert list(uncapped.get_lines()[0].get_ydata()) == [50, 100] and uncapped.get_lines()[0].get_linestyle() == ":"
    assert [line.get_label() for line in uncapped.get_lines()] == ["sps-plus", r"steps at $\gamma$ = 0"]
    without = history(**dict.fromkeys(shares, [0.0] * 4)).assign(scheduler="constant")
    empty = plot_shares(without, Figure().subplots())
    assert " ".join(empty.texts[0].get_text().split()) == "no step size has a cap here" and not empty.get_lines()
