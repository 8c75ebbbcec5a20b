"""What figures say of themselves."""

from __future__ import annotations

import re

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
