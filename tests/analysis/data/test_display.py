"""What Python and a notebook show of what the analysis returns."""

from __future__ import annotations

from pathlib import Path

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.published.cells import load_published
from polysweep.analysis.published.comparison import compare
from polysweep.analysis.tables.choice import select
from tests.support.made import CAPS, by_lr, capped, sweep
from tests.support.published import CIFAR, as_published


def test_runs_show_their_counts_and_not_their_frames(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, capped, **CAPS)
    counts = pulled.runs["outcome"].value_counts()
    assert repr(pulled) == (
        f"made: {len(pulled.runs)} runs: {counts['finished']} finished, {counts['diverged']} diverged; "
        "metric test/top1 (maximize)"
    )
    assert pulled._repr_html_() == f"<p>{pulled!r}</p>"


def test_a_selection_shows_its_cells_with_n(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr))
    head, columns, *rows = repr(selection).splitlines()
    assert head == "made: test/top1 at the best epoch, 4 cells"
    assert columns.split() == ["rho", "scheduler", "selected", "mean", "std", "n", "seeds"]
    assert len(rows) == 4 and rows[0].split()[-2:] == ["3", "3"]
    assert selection._repr_html_().count("<tr") == 5


def test_a_comparison_shows_its_verdicts(tmp_path: Path) -> None:
    compared = compare(sweep(tmp_path, as_published, **CIFAR), load_published("cifar"))
    assert repr(compared).startswith("made beside cifar: 12 of 192 published cells have runs here\n")
    assert "cosine falls off at the largest radius" in repr(compared) and "1 holds" in repr(compared)


def test_html_is_escaped(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    hostile = RunSet(pulled.protocol.__class__("<b>", "a&b", "minimize", ()), pulled.runs, pulled.load)
    assert hostile._repr_html_().startswith("<p>&lt;b&gt;: ") and "a&amp;b" in hostile._repr_html_()
