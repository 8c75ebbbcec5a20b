"""From the Store to frames, one choice per cell, and its table."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.layout import subtables
from polysweep.analysis.tables.mean_std import PUBLISHED_COLUMNS
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


@pytest.mark.parametrize("examples", [10, pytest.param(200, marks=pytest.mark.long)])
def test_means_are_of_finished_seeds_only_and_every_seed_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(st.lists(st.one_of(accuracies, st.sampled_from(["diverged", "failed", "new"])), min_size=24, max_size=24))
    def holds(fates: list) -> None:
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
        complete = (merged["failed"] + merged["missing"] == 0) & (
            merged["failed_chosen"] + merged["missing_chosen"] == 0
        )
        assert (merged["n"] <= merged["n_chosen"])[complete].all()
        for row in selection.cells.to_dict("records"):
            assert not (row["undecided"] and row["candidates"] > 1) or (pd.isna(row["mean"]) and row["selected"] == "")

    holds()
