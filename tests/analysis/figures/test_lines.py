"""Lines of a plot and the bands around them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.figures.lines import ends
from polysweep.analysis.tables.choice import select
from tests.support.made import sweep


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
