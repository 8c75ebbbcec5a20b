"""Panels, titles and legends: all text has its room, and nothing hides data."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.files import NamedFigure
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.figures.styles import looks_of
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.subset import only
from tests.support.made import CAPS, capped, sweep


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


def test_thirty_schedulers_with_names_of_sixty_characters_are_told_apart(pulled: RunSet) -> None:
    names = [f"scheduler_of_a_colleague.with:a=long name No{at:02d}".ljust(60, "y") for at in range(30)]
    base = pulled.runs[pulled.runs["scheduler"] == "polyak"]
    runs = pd.concat(
        [
            base.assign(scheduler=name, trial_id=[f"{at}-{i}" for i in base["trial_id"]])
            for at, name in enumerate(names)
        ],
        ignore_index=True,
    )
    selection = select(replace(pulled, runs=runs))
    assert len({json.dumps(look) for look in looks_of(names).values()}) == 30
    for one in figures(selection, width="column"):
        if one.name in ("robustness", "score"):
            canvas = FigureCanvasAgg(one.figure)
            canvas.draw()
            (legend,) = one.figure.legends
            shown = ["".join(text.get_text().split()) for text in legend.get_texts()]
            assert shown == ["".join(name.split()) for name in names]
            box = legend.get_window_extent(canvas.get_renderer())
            assert box.x0 >= 0 and box.x1 <= one.figure.bbox.x1 and box.y0 >= 0, "the legend is within the figure"
            assert one.figure.axes[0].get_window_extent().height > 100, "and leaves room for the data"


@pytest.mark.parametrize("width", ["page", "column"])
def test_nothing_is_cropped_and_no_text_overlaps_the_frame(tmp_path: Path, width: str) -> None:
    """Every text lies within the saved image, and no figure is wider than what it is made for."""
    selection = only(select(sweep(tmp_path, capped, **CAPS)), {"optimizer": "sam", "gamma_b": "-,0.5,10"})
    for drawn in figures(selection, width=width):
        figure = drawn.figure
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        box = figure.get_tightbbox(renderer)
        assert box.width <= {"page": 6.75, "column": 3.35}[width] * 1.12, drawn.name
        legend = figure.legends[0].get_window_extent(renderer) if figure.legends else None
        for ax in figure.axes:
            if legend is not None and ax.get_visible():
                assert not legend.overlaps(ax.get_window_extent(renderer)), f"{drawn.name}: the legend hides data"
