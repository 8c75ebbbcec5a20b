"""The figures over corrupted test images: there if something was measured, with the numbers of the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.figures.severity_plots import plot_severity
from polysweep.analysis.report.html import render_report
from polysweep.analysis.report.wandb_report import markdown_parts
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.severity import severity_cells
from polysweep.trainer.errors import UserError
from tests.support.made import by_lr, corrupted, sweep


def test_there_is_a_panel_per_corruption_and_a_line_per_scheduler_in_percent(tmp_path: Path) -> None:
    made = sweep(tmp_path, lambda c: "diverged" if (c.rho, c.scheduler, c.seed) == (0.4, "polyak", 1) else by_lr(c))
    selection = select(corrupted(made))
    drawn = {one.name: one for one in figures(selection) if one.name.startswith("severity")}
    assert list(drawn) == ["severity-rho-0.1", "severity-rho-0.4"], "one for each radius"
    axes = drawn["severity-rho-0.4"].figure.axes
    assert [ax.get_title() for ax in axes] == ["noise", "contrast"]
    cells = severity_cells(selection)
    for ax in axes:
        lines = {line.get_label(): line for line in ax.get_lines()}
        for scheduler in ("constant", "polyak"):
            rows = cells[
                (cells["rho"] == 0.4) & (cells["scheduler"] == scheduler) & (cells["corruption"] == ax.get_title())
            ]
            assert lines[scheduler].get_xydata().tolist() == [
                [severity, pytest.approx(100 * mean)] for severity, mean in zip(range(6), rows["mean"], strict=True)
            ]
        assert len(ax.collections) == 2, "a band of one std each"
        assert any(line.get_marker() == "x" and len(line.get_xdata()) == 6 for line in ax.get_lines())
    title = drawn["severity-rho-0.4"].figure.get_suptitle().replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ")
    assert title == (
        r"made, $\rho$ 0.4: corrupted test images, last epoch, mean and band of ± std, n = 2 to 3, selected on test"
    )
    assert drawn["severity-rho-0.4"].caption.endswith("cut off at 0 and 100 %; a cross marks diverged seeds.")


def test_without_measurements_neither_figure_nor_report_mentions_them(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr))
    assert not [one.name for one in figures(selection) if one.name.startswith("severity")]
    assert 'id="severity"' not in render_report(selection) and "Corrupted test images" not in markdown_parts(selection)


def test_the_reports_have_figure_and_tables(tmp_path: Path) -> None:
    selection = select(corrupted(sweep(tmp_path, by_lr)))
    page = render_report(selection)
    section = page.partition('id="severity"')[2].partition('id="plots"')[0]
    assert "<h3>noise</h3>" in section and "<td>84.00 ± 1.00</td>" in section
    assert 'aria-label="severity-rho-0.1"' in page
    assert len(markdown_parts(selection)["Corrupted test images"]) == 2


def test_rows_of_several_corruptions_are_refused(tmp_path: Path) -> None:
    cells = severity_cells(select(corrupted(sweep(tmp_path, by_lr))))
    with pytest.raises(UserError, match="rows share scheduler=constant severity=0; they differ in rho, corruption"):
        plot_severity(cells, Figure().subplots())
