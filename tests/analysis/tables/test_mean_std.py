"""Entries of a table with their counts, the verdict of each row, and the long table of the CSV."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
from scipy import stats

import polysweep
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.mean_std import PUBLISHED_COLUMNS, row_verdicts
from polysweep.analysis.tables.statistics import mean_interval
from polysweep.sweeps.planning.welch import Sample
from polysweep.trainer.config import TrialConfig
from tests.support.made import SPEC, by_lr, sweep


def test_a_winner_with_missing_or_diverged_seeds_is_marked(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        fates = {0: by_lr(config), 1: "diverged", 2: "new" if config.scheduler == "polyak" else by_lr(config)}
        return fates[config.seed] if config.rho == 0.1 else "diverged"

    text = render(select(sweep(tmp_path, score)), "markdown")
    assert "90.00 +- 1.41 (2/3, 1 diverged)" in text
    assert "| 94.00 (1/3, 1 diverged, 1 missing)" in text, "no mark while a seed is missing"
    assert "rho 0.1: no verdict: polyak undecided" in text
    assert text.count("diverged 3/3") == 2


def test_one_seed_has_no_std(tmp_path: Path) -> None:
    assert "| **89.00** (n = 1) | **94.00** (n = 1) |" in render(select(sweep(tmp_path, by_lr, seeds=1)), "markdown")


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


def test_csv_has_the_choice_its_budget_and_intervals(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr))
    frame = polysweep.long_table(selection)
    row = frame[frame["scheduler"] == "constant"].iloc[0]
    assert (row["candidates"], row["budget"], row["runner_up"], row["margin"]) == (3, 9, "lr=1.0", pytest.approx(10))
    expected = mean_interval(Sample(0.9, 0.01, 3), candidates=3)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(100 * end for end in expected))
    assert row["ci_low"] < 100 * (0.9 - 4.303 * 0.01 / math.sqrt(3)), "longer down than Student's for one candidate"
    assert "90.00 +- 1.00 [86.42, 91.99]" in render(selection, "markdown", intervals=True)
    assert r"$90.00_{\pm 1.00}$ [86.42, 91.99]" in render(selection, "latex", intervals=True)
    assert frame["test_accuracy_mean"].tolist() == pytest.approx([90, 87, 95, 92])
    loss = polysweep.long_table(select(selection.pulled, metric="test/loss"))
    assert "test_accuracy_mean" not in loss and loss["mean"].tolist() == pytest.approx([0.1, 0.13, 0.05, 0.08])


def test_the_best_is_compared_with_the_runner_up_over_seeds(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.rho == 0.4 and config.seed == 2 and config.scheduler == "polyak":
            return "diverged"
        return [0.9 + 0.01 * config.seed + (0.02 * (config.seed + 1) if config.scheduler == "polyak" else 0)]

    variants = [{"scheduler": {"value": "constant"}, "lr": {"value": 0.1}}, SPEC["variants"][1]]
    selection = select(sweep(tmp_path, score, variants=variants))
    first, second = row_verdicts(selection, selection.cells)
    assert (first.best, first.runner_up, first.difference.n) == ("polyak", "constant", 3)
    p = stats.ttest_ind([0.92, 0.95, 0.98], [0.9, 0.91, 0.92], equal_var=False).pvalue
    assert first.difference.p == pytest.approx(p) and first.p == pytest.approx(2 * p), "Holm over the two rows"
    assert (second.best, second.difference.n, second.p) == ("constant", 2, 1.0), "Polyak has lost a seed"
    assert first.text(["rho"], "test/top1").endswith("(n = 3): not shown")
    assert {key[1] for key in first.marked} == {"polyak", "constant"}, "what cannot be told from the best is marked too"
