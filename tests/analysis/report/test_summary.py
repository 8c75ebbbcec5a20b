"""What a report says first: the same sentences on the page and on W&B."""

from __future__ import annotations

import html
from pathlib import Path

from polysweep.analysis.published.cells import load_published
from polysweep.analysis.report.html import render_report
from polysweep.analysis.report.summary import Summary, beside_published
from polysweep.analysis.tables.choice import select
from polysweep.trainer.config import TrialConfig
from tests.support.made import by_lr, sweep


def test_the_page_and_the_text_have_the_same_sentences(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        return "new" if config.seed == 2 and config.scheduler == "polyak" else by_lr(config)

    selection = select(sweep(tmp_path, score))
    summary = Summary.of(selection)
    assert summary.counts == "24 trials in 4 cells: 22 finished, 2 new."
    assert summary.gaps == (
        "In 2 of 4 cells not every seed has finished.",
        "2 cells are undecided: some of their runs have no result yet.",
    )
    page = " ".join(html.unescape(render_report(selection)).split())
    text = summary.text(selection, "", "more")
    for sentence in (summary.counts, summary.cost, *summary.gaps, *summary.notes):
        assert sentence in page and sentence in text
    assert "n = 3 seeds" in text and text.endswith("- more") and "\n- \n" not in text
    assert str(tmp_path) not in text, "a folder of this machine says nothing on a server"


def test_without_published_cells_it_is_said_why(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr))
    assert beside_published(selection, None, None) == (None, None, "")
    compared, beside, why = beside_published(selection, load_published("cifar"), None)
    assert compared is None and beside is None and "none of its cells is in made" in why
