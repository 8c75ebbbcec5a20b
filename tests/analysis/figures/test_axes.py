"""Labels, bands, ticks and titles."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from polysweep.analysis.figures.files import NamedFigure
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.figures.lines import ends
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.subset import only
from polysweep.analysis.tables.wording import axis_label, drawable, in_unicode, wrapped
from tests.support.drawn import PARAMETERS
from tests.support.drawn import drawn as drawn
from tests.support.drawn import optimizers as optimizers
from tests.support.made import by_lr, sweep

# Labels, bands, ticks, titles.


def test_axes_say_in_words_what_they_show(drawn: dict[str, NamedFigure]) -> None:
    assert [axis_label(name) for name in ("test/top1", "val/top5", "train/loss", "mine/acc_$")] == [
        "test accuracy, top-1 (%)", "validation accuracy, top-5 (%)", "training loss", r"mine/acc_\$",
    ]  # fmt: skip
    assert in_unicode(axis_label("distance/relative")) == "‖x - x*‖² / ‖x⁰ - x*‖²"
    found = {name: one.figure.axes[0] for name, one in drawn.items()}
    ax = found["robustness-weight_decay-0-optimizer-sam"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"radius $\rho$", "test accuracy, top-1 (%)")
    stability = found["stability-lr-scheduler-constant-weight_decay-0-optimizer-sam"]
    assert stability.get_xlabel() == r"step size $\gamma$"
    assert found["gamma-weight_decay-0-optimizer-sgd"].get_ylabel() == r"step size $\gamma$"


def test_bands_are_named_and_stay_within_what_an_accuracy_can_be(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: [0.999 if c.seed else 0.9]))
    for one in figures(selection):
        if one.name.startswith(("robustness", "stability", "curves")):
            for band in (band for ax in one.figure.axes for band in ax.collections):
                heights = band.get_paths()[0].vertices[:, 1]
                assert heights.max() == 100 and heights.min() > 0, one.name
            assert "band of ± std" in one.figure.get_suptitle().replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ")
            assert "the band is ± one sample std, cut off at 0 and 100 %" in one.caption
    low, high = ends(np.array([1.0]), np.array([3.0]), "test/loss")
    assert (low[0], high[0]) == (-2.0, 4.0), "a loss is not cut"


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


def is_at_foot(ax: Axes) -> bool:
    """Whether no other panel stands below one."""
    own = ax.get_subplotspec()
    others = [other.get_subplotspec() for other in ax.figure.axes if other.get_visible()]
    return own is not None and not any(
        other.rowspan.start == own.rowspan.start + 1 and other.colspan.start == own.colspan.start
        for other in others
        if other is not None
    )


def test_texts_of_the_score_figure_do_not_lie_over_each_other(
    optimizers: Selection, drawn: dict[str, NamedFigure]
) -> None:
    small = only(optimizers, {"scheduler": "constant", "optimizer": "sam,usam"})
    for one, groups in ((drawn["score"], 4), (list(figures(small, width="column"))[-1], 4)):
        FigureCanvasAgg(one.figure).draw()
        (ax,) = one.figure.axes
        tall = [label.get_window_extent() for label in ax.get_yticklabels() if label.get_text()]
        assert len(tall) == groups
        boxes = [*tall, ax.xaxis.label.get_window_extent(), one.figure._suptitle.get_window_extent()]  # type: ignore[attr-defined]
        boxes += [legend.get_window_extent() for legend in one.figure.legends]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_titles_break_between_words_and_only_words_without_room_within() -> None:
    text = (
        "made, weight decay 0: best epoch, mean and band of n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}3, selected on test"
    )
    for longest in (12, 20, 36):
        lines = wrapped(text, longest).split("\n")
        assert " ".join(lines) == text and all(len(line) <= longest for line in lines)
    assert wrapped("a_rather_long-name.of/one:word 0.0005", 12).split("\n") == [
        "a_rather_",
        "long-name.",
        "of/one:word",
        "0.0005",
    ]
    assert all(len(line) <= 12 for line in wrapped("x" * 30 + " a_rather_long-name.of/one:word", 12).split("\n"))
    assert r"\$" in wrapped(drawable("x" * 11 + "$" + "y" * 11), 12), "an escape stays whole"
