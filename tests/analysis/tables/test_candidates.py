"""How the candidates of a cell rank, what their means are, and by how much one won."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.trainer.config import TrialConfig
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, a_run, by_lr, cell, sweep


@pytest.mark.usefixtures("fresh_client")
def test_an_infinite_result_has_no_std(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [a_run(f"r{s}", [{"acc": 0.5, "loss": math.inf if s else 1.0}], {"seed": s}) for s in (0, 1)]
    wandb_server.load("p", runs)
    chosen = select(pull(ADDRESS, cache=tmp_path, metric="acc"), metric="loss").cells.iloc[0]
    assert chosen["mean"] == math.inf and math.isnan(chosen["std"])


def test_finished_seeds_come_before_the_mean_and_the_spec_breaks_ties(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.lr == 0.1 and config.seed == 2:
            return "diverged"
        return [0.8] if config.lr in (0.01, 1.0) else by_lr(config)

    chosen = cell(select(sweep(tmp_path, score)), 0.1, "constant")
    assert (chosen["lr"], chosen["n"]) == (0.01, 3)


def test_means_are_exactly_those_of_python(tmp_path: Path) -> None:
    values = {0: 0.1, 1: 0.2, 2: 0.30000000000000004}
    chosen = cell(select(sweep(tmp_path, lambda c: [values[c.seed]])), 0.1, "polyak")
    assert chosen["mean"] == statistics.fmean(values.values()) and chosen["std"] == statistics.stdev(values.values())


def test_a_choice_says_by_how_much_it_won_and_over_what(tmp_path: Path) -> None:
    chosen = cell(select(sweep(tmp_path, by_lr)), 0.1, "constant")
    assert (chosen["runner_up"], chosen["candidates"], chosen["budget"]) == ("lr=1.0", 3, 9)
    assert chosen["margin"] == pytest.approx(0.10) and (chosen["ties"], chosen["edge"]) == (0, "")
    alone = cell(select(sweep(tmp_path / "other", by_lr)), 0.1, "polyak")
    assert math.isnan(alone["margin"]) and (alone["runner_up"], alone["budget"]) == ("", 3)
