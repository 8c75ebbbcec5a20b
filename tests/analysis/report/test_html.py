"""The plots of a sweep's choice, and its report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.files import image
from polysweep.analysis.figures.gallery import figures, save_all
from polysweep.analysis.figures.plots import plot_robustness
from polysweep.analysis.report.html import render_report, write_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.made import by_lr, sweep

# Plots and report.

NAMES = ["robustness", "curves", "ascent-gain", "gamma", "stability-lr-scheduler-constant", "score"]


def test_the_robustness_plot_shows_the_numbers_of_the_table(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: "diverged" if (c.rho, c.seed) == (0.4, 1) else by_lr(c)))
    _, ax = plt.subplots()
    assert plot_robustness(selection.cells, "test/top1", ax) is ax
    lines = {line.get_label(): line for line in ax.get_lines()}
    for scheduler in ("constant", "polyak"):
        rows = selection.cells[selection.cells["scheduler"] == scheduler]
        assert list(lines[scheduler].get_xdata()) == [0.1, 0.4]
        assert list(lines[scheduler].get_ydata()) == pytest.approx(list(rows["mean"] * 100))
    crosses = [line for line in ax.get_lines() if line.get_marker() == "x" and len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in crosses] == [[0.4], [0.4]]
    assert "diverged seeds" in [text.get_text() for text in ax.get_legend().get_texts()]
    plt.close("all")


def test_a_cell_without_a_finished_seed_is_marked_at_the_foot(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: "diverged" if c.rho == 0.4 else by_lr(c)))
    _, ax = plt.subplots()
    plot_robustness(selection.cells, "test/top1", ax)
    crosses = [line for line in ax.get_lines() if line.get_marker() == "x" and len(line.get_xdata())]
    assert [list(line.get_ydata()) for line in crosses] == [[0.02], [0.02]]
    plt.close("all")


def test_curves_are_of_the_chosen_trials(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr))
    drawn = {one.name: one for one in figures(selection)}
    assert list(drawn) == NAMES
    panel = drawn["curves"].figure.axes[0]
    constant = next(line for line in panel.get_lines() if line.get_label() == "constant")
    assert list(constant.get_ydata()) == pytest.approx([80, 90, 85])
    plt.close("all")


def test_plots_are_written_as_png_and_svg_and_are_reproducible(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path / "store", by_lr))
    paths = save_all(selection, tmp_path / "a")
    assert sorted(p.name for p in paths) == sorted(f"{name}.{kind}" for name in NAMES for kind in ("png", "svg", "csv"))
    first = next(figures(selection))
    assert [p.read_bytes() for p in paths[:2]] == [image(first.figure, kind) for kind in ("png", "svg")]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert not plt.get_fignums(), "nothing stays open"


def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        fates: dict[int, list[float] | str] = {0: by_lr(config), 1: by_lr(config), 2: "diverged"}
        return "failed" if config.lr == 1.0 else fates[config.seed]

    page = render_report(select(sweep(tmp_path, score)))
    sources = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page)
    assert len([s for s in sources if s.startswith("data:image/svg+xml;base64,")]) == len(NAMES)
    assert all(s.startswith(("data:", "#")) for s in sources)
    assert not re.search(r"@import|url\(|<script src|<link rel=.stylesheet", page)
    for expected in (
        "ValueError: oh", "after step 4", "lr=0.1", "c0ffee (24 trials)", "Selected on test",
        "89.50 ± 0.71 (2/3, 1 diverged)",
    ):  # fmt: skip
        assert expected in page
    for part in ("tables", "plots", "selection", "failures", "spec", "provenance"):
        assert f'<h2 id="{part}">' in page


def test_hostile_text_is_escaped(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, lambda c: "failed" if c.seed == 2 else by_lr(c))
    pulled.runs.loc[pulled.runs["outcome"] == "failed", "error"] = "<script>alert(1)</script>"
    page = render_report(select(pulled))
    assert "<script>alert" not in page and "&lt;script&gt;" in page


def test_a_finished_trial_without_its_history_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    victim = pulled.runs["trial_id"].iloc[0]
    (tmp_path / "trials" / victim / "history.parquet").unlink()
    for _ in range(2):  # as read, and from the cache
        runs = pull("made", store=Store(str(tmp_path)), cache=tmp_path / "cache").runs.set_index("trial_id")
        assert runs.loc[victim, "outcome"] == "failed"
        assert f"{victim}/history.parquet: damaged: 0 epochs of 3 of a finished trial" in runs.loc[victim, "error"]
        assert (runs.drop(victim)["outcome"] == "finished").all() and runs.drop(victim)["best/test/top1"].notna().all()


def test_a_sweep_that_diverged_altogether_has_a_report(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda _: "diverged"))
    page = render_report(selection)
    assert "after step 4" in page and "diverged 3/3" in page
    assert (selection.cells["selected"] == "").all() and (selection.cells["edge"] == "").all()
    assert save_all(selection, tmp_path / "plots")


def test_nothing_trained_yet_is_said(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda _: "new"))
    for call in (
        lambda: save_all(selection, tmp_path / "x"),
        lambda: write_report(selection, tmp_path / "x.html"),
    ):
        with pytest.raises(UserError, match="sweep 'made': no trial has finished an epoch yet"):
            call()
    assert "0/3, 3 missing" in render(selection, "markdown")
