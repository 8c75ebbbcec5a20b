"""A whole table as text, with what is said below it."""

from __future__ import annotations

from pathlib import Path

from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import edge_warnings, render
from tests.support.made import by_lr, cell, sweep


def test_the_table_says_what_it_shows(tmp_path: Path) -> None:
    text = render(select(sweep(tmp_path, by_lr)), "markdown")
    assert text.splitlines() == [
        "made: test/top1 (%) at the best epoch, mean +- sample std over n = 3 seeds, selected on test",
        "",
        "| rho | constant      | polyak            |",
        "|-----|---------------|-------------------|",
        "| 0.1 | 90.00 +- 1.00 | **95.00 +- 1.00** |",
        "| 0.4 | 87.00 +- 1.00 | **92.00 +- 1.00** |",
        "",
        "selected: constant lr=0.1",
        "chosen from, runs per cell: constant 9; polyak 3",
        "bold: the best of its row, and every entry that cannot be told from it (Welch's t, Holm over all pairs in the "
        "rows of the table, 0.05); intervals are 95 %, of one difference each",
        "best against runner-up:",
        "  rho 0.1: polyak over constant by 5.00 [3.05, 7.85], p = 0.0048 (n = 3): shown",
        "  rho 0.4: polyak over constant by 5.00 [3.05, 7.85], p = 0.0048 (n = 3): shown",
    ]


def test_ties_and_edges_are_said(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: [0.7] if c.lr == 0.1 else [0.8]))
    chosen = cell(selection, 0.1, "constant")
    assert (chosen["lr"], chosen["ties"], chosen["edge"], chosen["margin"]) == (0.01, 1, "lr", 0.0)
    text = render(selection, "markdown")
    assert "at the edge of its grid, so a better value may lie outside: constant lr" in text
    assert "ties, decided by the order in the spec: constant 1" in text
    assert edge_warnings(selection) == [
        "lr: in 2 of 4 cells the chosen value is at the edge of its grid; a better one may lie outside"
    ]
