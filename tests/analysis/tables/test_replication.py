"""What a replication has decided, as frames, tables and reports show it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import decision_table, render
from polysweep.analysis.tables.replication import decision_rows, decisions, replication_text
from polysweep.sweeps.spec.decisions import Compared, Look
from polysweep.sweeps.spec.protocol import Protocol, Replication
from tests.support.made import by_lr, sweep

FIRST = Compared(("a", "b"), "polyak", "constant", "rho=0.1", 3, 0.01, -0.1, 0.12, "not decided")
OTHER = Compared(("c", "d"), "polyak", "constant", "rho=0.4", 3, 0.2, 0.15, None, "better")
SECOND = replace(FIRST, n=5, estimate=0.002, low=-0.001, high=0.004, verdict="equivalent")
RULE = {
    "replication": Replication(compare="scheduler", looks=[3, 5, 10], margin="0.5 points"),
    "looks_made": (Look(1, 3, 0.001, {}, 2, (FIRST, OTHER)), Look(2, 5, 0.01, {}, 2, (SECOND,))),
}


def test_each_comparison_has_the_look_that_decided_it(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    assert decisions(pulled).empty and replication_text(pulled) == ""
    made = replace(pulled, protocol=replace(pulled.protocol, **RULE))
    frame = decisions(made)
    assert frame["cells"].tolist() == ["rho=0.1", "rho=0.4"]
    assert frame[["verdict", "look", "n"]].values.tolist() == [["equivalent", 2, 5], ["better", 1, 3]]
    assert frame["low"].tolist() == [-0.001, 0.15] and math.isnan(frame["high"].tolist()[1])
    rows = decision_rows(made)
    assert rows[1] == ["rho=0.1", "polyak and constant: equivalent", "0.20", "-0.10 to 0.40", "5", "look 2", "0.01"]
    assert rows[2] == ["rho=0.4", "polyak better than constant", "20.00", "-", "3", "look 1", "0.001"]
    assert "decided comparisons: 2 of 2" in replication_text(made)


def test_tables_show_it_and_count_the_looks(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    once = select(pulled)
    made = select(replace(pulled, protocol=replace(pulled.protocol, **RULE)))
    for format_ in ("markdown", "latex", "html"):
        assert "decided by replication" in render(made, format_), format_
    assert len(decision_table(made)) == 1 and decision_table(once) == []
    cells = once.cells.to_dict("records")
    plain, counted = once.difference([cells[2]], [cells[0]]), made.difference([cells[2]], [cells[0]])
    assert counted.p_above == pytest.approx(min(1.0, 3 * plain.p_above)) and counted.low < plain.low
    assert made.interval(cells[0])[0] < once.interval(cells[0])[0]


def test_retrained_trials_were_compared_on_the_test_set(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    rule = replace(pulled.protocol, **RULE, metric="val/top1", roles=Protocol(tune_on=[0], report_on=[1], retrain=True))
    assert "scheduler by test/top1: " in replication_text(replace(pulled, protocol=rule))
