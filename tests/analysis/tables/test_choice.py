"""From the Store to frames, one choice per cell, tables, plots and the report."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.files import image
from polysweep.analysis.figures.gallery import figures, save_all
from polysweep.analysis.figures.plots import plot_robustness
from polysweep.analysis.report.html import render_report, write_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.layout import subtables
from polysweep.analysis.tables.mean_std import PUBLISHED_COLUMNS
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.made import SPEC, by_lr, cell, sweep


def test_runs_have_config_best_and_last_and_provenance(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, lambda c: "diverged" if c.lr == 1.0 else by_lr(c))
    assert len(pulled.runs) == 24 and len(pulled.history) == 3 * 18 + 6
    run = pulled.runs[(pulled.runs["lr"] == 0.1) & (pulled.runs["rho"] == 0.1)].iloc[0]
    assert (run["best_epoch"], run["best/test/top1"], run["last/test/top1"]) == (2, 0.89, 0.89 - 0.05)
    assert (run["sweep"], run["outcome"], run["commit"], run["version.torch"]) == (
        "made",
        "finished",
        "c0ffee",
        "2",
    )
    diverged = pulled.runs[pulled.runs["outcome"] == "diverged"]
    assert len(diverged) == 6
    assert diverged[[c for c in diverged if c.startswith(("best/", "last/"))]].isna().all(axis=None)


def test_the_best_mean_over_seeds_is_chosen_per_cell(tmp_path: Path) -> None:
    chosen = cell(select(sweep(tmp_path, by_lr)), 0.1, "constant")
    assert (chosen["lr"], chosen["selected"], chosen["n"], chosen["candidates"]) == (0.1, "lr=0.1", 3, 3)
    values = [0.89, 0.90, 0.91]
    assert chosen["mean"] == pytest.approx(statistics.fmean(values))
    assert chosen["std"] == pytest.approx(statistics.stdev(values)), "sample std, ddof = 1"


def test_finished_seeds_come_before_the_mean_and_the_spec_breaks_ties(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.lr == 0.1 and config.seed == 2:
            return "diverged"
        return [0.8] if config.lr in (0.01, 1.0) else by_lr(config)

    chosen = cell(select(sweep(tmp_path, score)), 0.1, "constant")
    assert (chosen["lr"], chosen["n"]) == (0.01, 3)


def test_a_winner_with_missing_or_diverged_seeds_is_marked(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        fates = {0: by_lr(config), 1: "diverged", 2: "new" if config.scheduler == "polyak" else by_lr(config)}
        return fates[config.seed] if config.rho == 0.1 else "diverged"

    text = render(select(sweep(tmp_path, score)), "markdown")
    assert "90.00 +- 1.41 (2/3, 1 diverged)" in text
    assert "| 94.00 (1/3, 1 diverged, 1 missing)" in text, "no mark while a seed is missing"
    assert "rho 0.1: no verdict: polyak undecided" in text
    assert text.count("diverged 3/3") == 2


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


def test_last_epoch_and_another_metric(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    last = render(select(pulled, epoch="last"), "markdown")
    assert "at the last epoch" in last and "85.00 +- 1.00" in last
    loss = render(select(pulled, metric="test/loss"), "markdown")
    assert "0.1000 +- 0.0100" in loss and "**0.0500 +- 0.0100**" in loss, "not percent, and the lowest is best"


def test_a_metric_to_minimise_selects_the_lowest(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr, metric={"name": "test/loss", "goal": "minimize"})
    assert cell(select(pulled), 0.1, "constant")["lr"] == 0.1


def test_one_seed_has_no_std(tmp_path: Path) -> None:
    assert "| **89.00** (n = 1) | **94.00** (n = 1) |" in render(select(sweep(tmp_path, by_lr, seeds=1)), "markdown")


def test_one_table_per_remaining_parameter(tmp_path: Path) -> None:
    changed = json.loads(json.dumps(SPEC))
    changed["variants"][1]["gamma_b"] = {"values": [0.5, 1]}
    changed["parameters"]["optimizer"] = {"values": ["usam", "sam"]}
    selection = select(sweep(tmp_path, by_lr, **changed))
    tables = list(subtables(selection))
    assert [values for values, _ in tables] == [
        {"optimizer": o, "gamma_b": g} for o in ("usam", "sam") for g in (0.5, 1.0)
    ]
    assert all(len(cells) == 4 for _, cells in tables), "the constant step size stands in each"
    text = render(selection, "markdown")
    assert "made (optimizer = sam, gamma_b = 0.5): " in text
    assert len(render(selection, "csv").splitlines()) == 1 + 2 * (2 + 4)


@pytest.mark.parametrize(
    "parameters",
    [{"model": {"values": ["mlp", "resnet8"]}}, {"model_options": {"values": [{"hidden": 8}, {"hidden": 16}]}}],
)
def test_models_and_options_may_vary(tmp_path: Path, parameters: dict) -> None:
    selection = select(sweep(tmp_path, by_lr, parameters={**SPEC["parameters"], **parameters}))
    assert len(list(subtables(selection))) == 2
    assert render(selection, "markdown").count("90.00 +- 1.00") == 2
    assert len({one.name for one in figures(selection)}) == 2 * 4 + 2 + 1


def test_an_optimizer_without_a_radius_has_a_row_of_its_own(tmp_path: Path) -> None:
    parameters = {k: v for k, v in SPEC["parameters"].items() if k != "rho"} | {"optimizer": {"value": "sgd"}}
    selection = select(sweep(tmp_path, by_lr, parameters=parameters))
    assert "| -   | 91.00 +- 1.00 | **96.00 +- 1.00** |" in render(selection, "markdown")
    assert next(figures(selection)).name == "means"
    assert "<h2" in render_report(selection)


def test_words_may_be_tuned(tmp_path: Path) -> None:
    parameters = {**SPEC["parameters"], "rho_schedule": {"values": ["constant", "inverse"]}}
    selection = select(sweep(tmp_path, by_lr, parameters=parameters, tuned=["lr", "rho_schedule"]))
    assert cell(selection, 0.1, "constant")["selected"] == "lr=0.1 rho_schedule=constant"


def test_csv_has_the_published_columns_and_counts(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        return "diverged" if config.seed == 1 and config.scheduler == "polyak" else by_lr(config)

    rows = list(csv.DictReader(io.StringIO(render(select(sweep(tmp_path, score)), "csv"))))
    columns = [*PUBLISHED_COLUMNS, "n", "diverged", "missing", "selected"]
    assert list(rows[0])[: len(columns)] == columns
    assert (rows[0]["dataset"], rows[0]["scheduler"], rows[0]["selected"]) == ("digits", "constant", "lr=0.1")
    assert float(rows[0]["test_accuracy_mean"]) == pytest.approx(90)
    assert [row["diverged"] for row in rows] == ["0", "0", "1", "1"]
    assert [row["n"] for row in rows] == ["3", "3", "2", "2"]


def test_latex_is_booktabs_with_the_best_in_bold(tmp_path: Path) -> None:
    text = render(select(sweep(tmp_path, by_lr)), "latex")
    assert r"0.1 & $90.00_{\pm 1.00}$ & $\mathbf{95.00_{\pm 1.00}}$ \\" in text
    assert r"\toprule" in text and r"(\%)" in text and text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "test/top3"}, "--metric: unknown metric 'test/top3'; did you mean 'test/top"),
        ({"metric": "val/top1"}, "--metric: val/top1 was not measured"),
        ({"epoch": "first"}, "--epoch: 'first'; expected best or last"),
    ],
)
def test_a_wrong_choice_is_named(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        select(sweep(tmp_path, by_lr), **options)
    with pytest.raises(UserError, match="--format: 'pdf'; expected one of csv, html, latex, markdown"):
        render(select(sweep(tmp_path / "other", by_lr)), "pdf")


accuracies = st.lists(st.floats(0, 1), min_size=1, max_size=3)


@given(st.lists(st.one_of(accuracies, st.sampled_from(["diverged", "failed", "new"])), min_size=24, max_size=24))
def test_means_are_of_finished_seeds_only_and_every_seed_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, fates: list
) -> None:
    given_fates = iter(fates)
    pulled = sweep(tmp_path_factory.mktemp("store"), lambda _: next(given_fates))
    selection = select(pulled)
    for row in selection.cells.to_dict("records"):
        assert row["n"] + row["diverged"] + row["failed"] + row["stopped"] + row["missing"] == row["seeds"] == 3
    best = {run["trial_id"]: run["best/test/top1"] for run in pulled.runs.to_dict("records")}
    for keys, group in selection.values.groupby(["rho", "scheduler"]):
        finished = [best[t] for t in group[group["outcome"] == "finished"]["trial_id"]]
        row = cell(selection, *keys)
        assert row["n"] == len(finished)
        assert pd.isna(row["mean"]) if not finished else row["mean"] == pytest.approx(statistics.fmean(finished))
    chosen = selection.candidates[selection.candidates["rank"] == 1]
    merged = selection.candidates.merge(chosen, on=["rho", "scheduler"], suffixes=("", "_chosen"))
    complete = (merged["failed"] + merged["missing"] == 0) & (merged["failed_chosen"] + merged["missing_chosen"] == 0)
    assert (merged["n"] <= merged["n_chosen"])[complete].all()
    for row in selection.cells.to_dict("records"):
        assert not (row["undecided"] and row["candidates"] > 1) or (pd.isna(row["mean"]) and row["selected"] == "")


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
