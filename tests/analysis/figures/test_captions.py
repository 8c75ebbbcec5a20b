"""What figures say of themselves."""

from __future__ import annotations

import re

import pandas as pd

from polysweep.analysis.figures.captions import band, each, n_of, one_line_per, sentence
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.subset import only


def test_figures_of_the_report_have_captions_in_words(optimizers: Selection) -> None:
    page = render_report(only(optimizers, {"weight_decay": "0", "scheduler": "polyak", "optimizer": ["sam", "sgd"]}))
    captions = re.findall(r"<figcaption>(.*?) <a", page)
    assert captions[0].startswith(
        "Test accuracy, top-1 (%) against the radius \N{GREEK SMALL LETTER RHO}, one panel per"
    )
    assert not any("$" in caption or "=" in caption.replace("n = ", "") for caption in captions)
    assert 'aria-label="candidates"><table class="sortable fits">' in page, "its cells wrap: nothing is cut"


def test_captions_count_runs_and_say_what_a_line_and_a_band_are() -> None:
    assert n_of(pd.DataFrame({"n": [3, 2, 3]})) == "2 to 3" and n_of(pd.DataFrame({"n": [3, 3]})) == "3"
    assert (
        each([]) == "run" and one_line_per(["optimizer", "weight_decay"]) == "one line per optimizer and weight decay"
    )
    assert band("test/loss", "bar") == "the bar is ± one sample std"
    assert band("test/top1") == "the band is ± one sample std, cut off at 0 and 100 %"
    assert sentence("loss", {"gamma_b": 10.0}, "n = 3") == "Loss (cap 10): n = 3."
