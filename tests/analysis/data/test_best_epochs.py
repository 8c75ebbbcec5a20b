"""The best and the last epoch of a run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, a_run


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
