"""Scores of runs, columns of several types, and the direction of a metric by its name."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from polysweep.analysis.data import wandb_api as project
from polysweep.analysis.data.frames import RunSet, by_name
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.gallery import save_all
from polysweep.analysis.figures.plots import plot_robustness
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.layout import Layout
from polysweep.analysis.tables.mean_std import mean_std_table, row_verdicts
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, a_run


@pytest.mark.parametrize(
    ("name", "maximal"),
    [
        ("val/acc", True), ("test_accuracy", True), ("valAcc", True), ("eval/AUC", True), ("mAP", None), ("map", True),
        ("val_loss", False), ("Loss/train", False), ("val_mape", False), ("test.RMSE", False),
        ("mapping_cost", None), ("acceleration", None), ("lossless_ratio", None), ("mapper", None), ("recaller", None),
        ("errand", None), ("top1_error", None), ("score", None), ("précision", None),
    ],
)  # fmt: skip
def test_the_name_of_a_metric_tells_its_direction_by_whole_words(name: str, maximal: bool | None) -> None:
    assert by_name(name) is maximal


@pytest.mark.usefixtures("fresh_client")
def test_an_infinite_value_is_never_the_best(wandb_server: Wandb, tmp_path: Path) -> None:
    """Neither of a run's epochs, nor of a row's cells, nor of a cell's candidates."""
    scores = {("a", 1): (0.5, 0.6), ("a", 2): (math.inf, 0.7), ("b", 1): (0.9, 0.8)}
    runs = [
        a_run(f"{which}{lr}{seed}", [{"acc": first + seed / 50, "gain": math.inf if which == "a" else 1.0},
                                             {"acc": last + seed / 50}],
              {"scheduler": which, "lr": lr, "rho": 0.1, "seed": seed})
        for (which, lr), (first, last) in scores.items()
        for seed in (0, 1)
    ]  # fmt: skip
    wandb_server.load("p", runs)
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc", tuned=["lr"])
    chosen = select(pulled)
    assert chosen.cells["mean"].tolist() == pytest.approx([0.71, 0.91]) and chosen.cells["lr"].tolist() == [2, 1]
    text = render(chosen, "markdown")
    assert "**0.9100 +- 0.0141**" in text and "**0.7100" not in text
    gains = pull(ADDRESS, cache=tmp_path, metric="gain", goal="maximize", tuned=["lr"])
    text = render(select(gains, epoch="last"), "markdown")
    assert "**inf" not in text and "**1.0000 +- 0.0000**" in text


@pytest.mark.usefixtures("fresh_client")
def test_metrics_that_are_logged_by_several_calls_are_found(wandb_server: Wandb, tmp_path: Path) -> None:
    rows = [{"acc": 0.5}, {"loss": 2.0}, {"acc": 0.7}, {"loss": 1.0}, {"acc": 0.6}, {"loss": 1.5}]
    wandb_server.load("p", [a_run("a", rows, {"seed": 0})])
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    run = pulled.runs.iloc[0]
    assert (run["best/acc"], run["last/acc"], run["last/loss"], run["best/loss"]) == (0.7, 0.6, 1.5, 2.0)
    assert "0.7000 (n = 1)" in render(select(pulled), "markdown").replace("**", "")


@pytest.mark.usefixtures("fresh_client")
def test_a_column_that_is_a_mark_here_and_a_number_there_is_text(
    wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "RUNS_PER_REQUEST", 1)
    rows = [{"acc": 0.5, "flag": True}, {"acc": 0.5, "flag": 0.25}]
    wandb_server.load("p", [a_run(f"r{at}", [row], {"seed": at}) for at, row in enumerate(rows)])
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    assert pulled.history["flag"].tolist() == ["true", "0.25"]
    with pytest.raises(UserError, match="--metric: 'flag' is not a number; expected one of acc"):
        pull(ADDRESS, cache=tmp_path, metric="flag")


def test_a_text_is_one_field_wherever_fields_are_asked_for(pulled: RunSet, tmp_path: Path) -> None:
    selection = select(pulled)
    assert Layout.of(selection, "scheduler", "rho") == Layout.of(selection, ["scheduler"], ["rho"])
    assert mean_std_table(selection, rows="scheduler", cols="rho").index.name == "scheduler"
    (verdict, _) = row_verdicts(selection, selection.cells)
    assert verdict.text("rho", "test/top1").startswith("rho 0.1: polyak over constant")
    assert set(pulled.columns("test/top1")) == {"trial_id", "test/top1"}
    assert {path.suffix for path in save_all(selection, tmp_path, kinds="svg")} == {".svg", ".csv"}
    ax = plot_robustness(selection.cells, "test/top1", Figure().subplots(), lines="scheduler")
    assert ax.get_legend_handles_labels()[1] == ["constant", "polyak"]
