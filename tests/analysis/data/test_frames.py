"""Scores of runs, columns of several types, and the direction of a metric by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from polysweep.analysis.data import wandb_api as project
from polysweep.analysis.data.frames import RunSet, by_name
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.gallery import save_all
from polysweep.analysis.figures.plots import plot_robustness
from polysweep.analysis.tables.choice import select
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
