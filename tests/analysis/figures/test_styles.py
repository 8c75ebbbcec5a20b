"""Looks of lines that differ in grey too, and the style file for one figure at a time."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.figures.styles import in_order, look_at, looks_of
from polysweep.analysis.tables.choice import select
from tests.support.project import ROOT


def test_a_generator_that_is_broken_off_leaves_the_settings_of_matplotlib(pulled: RunSet) -> None:
    before = dict(mpl.rcParams)
    generator = figures(select(pulled))
    next(generator)
    assert dict(mpl.rcParams) == before, "also between two figures"
    mpl.rcParams["lines.linewidth"] = before["lines.linewidth"] + 1
    try:
        next(generator)
        assert mpl.rcParams["lines.linewidth"] == before["lines.linewidth"] + 1, "what the user sets in between stays"
    finally:
        mpl.rcParams["lines.linewidth"] = before["lines.linewidth"]
    generator.close()  # type: ignore[attr-defined]
    assert dict(mpl.rcParams) == before


def test_importing_the_plots_changes_no_setting_of_matplotlib() -> None:
    code = (
        "import matplotlib as mpl; mpl.use('svg'); before = dict(mpl.rcParams)\n"
        "import polysweep.analysis.report.html, polysweep.analysis.theory.figures, seaborn\n"
        "assert dict(mpl.rcParams) == before and mpl.get_backend() == 'svg'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_lines_differ_in_grey(tmp_path: Path) -> None:
    from polysweep.analysis.figures.styles import looks_of

    found = looks_of(["constant", "cosine", "polyak"])
    assert len({look["marker"] for look in found.values()}) == len({look["linestyle"] for look in found.values()}) == 3


def test_forty_eight_lines_differ_and_a_scheduler_looks_the_same_beside_any_others() -> None:
    assert len({repr(look_at(place)) for place in range(48)}) == 48
    assert looks_of(["polyak", "mine"])["polyak"] == looks_of(["cosine", "polyak"])["polyak"] == look_at(2)
    assert looks_of(["mine"])["mine"] == look_at(0) and looks_of(["mine", "cosine"])["mine"] == look_at(3)
    assert looks_of(["mine", "momo"]) == {"momo": look_at(5), "mine": look_at(6)}
    assert looks_of(["mine", "sps-plus", "constant"])["sps-plus"] == look_at(3) == looks_of(["sps-plus"])["sps-plus"]


def test_numbers_come_by_size_then_words_by_the_alphabet() -> None:
    values = pd.Series(["b", 10, True, 2, None, "a", 2, math.inf], dtype=object)
    assert in_order(values) == [2, 10, True, "a", "b", math.inf]
