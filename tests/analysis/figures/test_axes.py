"""Ticks: with numbers at every panel, and with words where values are words."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.files import image
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.tables.choice import select
from tests.support.drawn import PARAMETERS, with_field
from tests.support.made import by_lr, sweep


def is_at_foot(ax: Axes) -> bool:
    """Whether no other panel stands below one."""
    own = ax.get_subplotspec()
    others = [other.get_subplotspec() for other in ax.figure.axes if other.get_visible()]
    return own is not None and not any(
        other.rowspan.start == own.rowspan.start + 1 and other.colspan.start == own.colspan.start
        for other in others
        if other is not None
    )


def test_every_panel_has_ticks_with_numbers(tmp_path: Path) -> None:
    radii = {"parameters": {**PARAMETERS, "rho": {"values": [0.05, 0.1, 0.4]}}}
    selection = select(sweep(tmp_path, by_lr, **radii, seeds=1))
    for width in ("page", "column"):
        for one in figures(selection, width=width):
            FigureCanvasAgg(one.figure).draw()
            names = [ax.yaxis.label for ax in one.figure.axes if ax.get_ylabel()] + [one.figure._supylabel]  # type: ignore[attr-defined]
            sides = [text.get_window_extent() for text in names if text is not None]
            assert not any(a.overlaps(b) for a, b in itertools.combinations(sides, 2)), f"{one.name}: two names of axes"
            for ax in (ax for ax in one.figure.axes if ax.get_visible() and one.name != "score"):
                assert any(label.get_text() for label in ax.get_yticklabels()), f"{one.name}: no numbers at the left"
                if is_at_foot(ax):
                    labels = [label for label in ax.get_xticklabels() if label.get_text() and label.get_visible()]
                    boxes = [label.get_window_extent() for label in labels]
                    assert boxes, f"{one.name}: no numbers at the foot"
                    assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes)), f"{one.name}: over each other"


def test_tuned_values_and_radii_that_are_words_stand_side_by_side(pulled: RunSet) -> None:
    selection = with_field(pulled, "lr", lambda lr: {0.01: "small", 0.1: "auto", 1.0: "large"}[lr])
    (one,) = [one for one in figures(selection) if one.name == "stability-lr-scheduler-constant"]
    image(one.figure, "svg")
    (ax,) = one.figure.axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["auto", "large", "small"]
    assert ax.get_lines()[0].get_ydata()[0] == pytest.approx(90.0) and ax.get_xscale() == "linear"
    for change in (
        lambda rho: f"radius {rho}",
        lambda rho: "auto" if rho == 0.1 else rho,
        lambda rho: 10**400 if rho == 0.1 else 2,
    ):
        mixed = next(figures(with_field(pulled, "rho", change)))
        mixed.figure.draw_without_rendering()
        assert len(mixed.figure.axes[0].get_xticks()) == 2
