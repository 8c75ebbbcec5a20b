"""Histories of the chosen trials."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from polysweep.analysis.figures.gallery import figures, save_all
from polysweep.analysis.report.html import write_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.trainer.errors import UserError
from tests.support.drawn import NAMES
from tests.support.made import by_lr, sweep


def test_curves_are_of_the_chosen_trials(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr))
    drawn = {one.name: one for one in figures(selection)}
    assert list(drawn) == NAMES
    panel = drawn["curves"].figure.axes[0]
    constant = next(line for line in panel.get_lines() if line.get_label() == "constant")
    assert list(constant.get_ydata()) == pytest.approx([80, 90, 85])
    plt.close("all")


def test_nothing_trained_yet_is_said(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda _: "new"))
    for call in (
        lambda: save_all(selection, tmp_path / "x"),
        lambda: write_report(selection, tmp_path / "x.html"),
    ):
        with pytest.raises(UserError, match="sweep 'made': no trial has finished an epoch yet"):
            call()
    assert "0/3, 3 missing" in render(selection, "markdown")
