"""The figure over label noise: there if it varies, with the numbers of the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.tables.choice import select
from tests.support.made import SPEC, by_lr, sweep

NOISY = {**SPEC["parameters"], "label_noise": {"values": [0, 0.2, 0.6]}}


def test_there_is_a_panel_per_radius_and_a_line_per_scheduler(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: [v - c.label_noise / 2 for v in by_lr(c)], parameters=NOISY))
    (one,) = [figure for figure in figures(selection) if figure.name == "label-noise"]
    assert [ax.get_title() for ax in one.figure.axes] == [r"$\rho$ = 0.1", r"$\rho$ = 0.4"]
    lines = {line.get_label(): line for line in one.figure.axes[1].get_lines()}
    assert lines["polyak"].get_xydata().tolist() == [[0, 92], [0.2, pytest.approx(82)], [0.6, pytest.approx(62)]]
    assert len(one.figure.axes[1].collections) == 2, "a band of one std each"
    title = one.figure.get_suptitle().replace("\N{NO-BREAK SPACE}", " ")
    assert title == "made: best epoch, mean and band of ± std, n = 3, selected on test"
    assert len(one.data) == 12


def test_one_radius_is_one_panel_and_optimizers_are_figures_of_their_own(tmp_path: Path) -> None:
    parameters = {**NOISY, "rho": {"value": 0.1}, "optimizer": {"values": ["sam", "usam"]}}
    names = {one.name: one for one in figures(select(sweep(tmp_path, by_lr, parameters=parameters)))}
    drawn = [one for name, one in names.items() if name.startswith("label-noise")]
    assert [one.name for one in drawn] == ["label-noise-optimizer-sam", "label-noise-optimizer-usam"]
    assert all(len(one.figure.axes) == 1 for one in drawn)


@pytest.mark.parametrize("case", ["it does not vary", "it names the lines"])
def test_there_is_none_otherwise(tmp_path: Path, case: str) -> None:
    if case == "it names the lines":
        selection, cols = select(sweep(tmp_path, by_lr, parameters=NOISY)), ["scheduler", "label_noise"]
    else:
        selection, cols = select(sweep(tmp_path, by_lr)), ["scheduler"]
    assert not [one.name for one in figures(selection, cols=cols) if one.name.startswith("label-noise")]
