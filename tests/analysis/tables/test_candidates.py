"""How the candidates of a cell rank, what their means are, and by how much one won."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.candidates import best_possible, rank_of, that_could_win
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


def candidate(scores: list[float], lacking: int = 0, lost: int = 0) -> dict[str, Any]:
    """A candidate with these scores, seeds without a result, and seeds lost."""
    return {"scores": scores, "lacking": lacking, "lost": lost, "score": statistics.fmean(scores)}


def test_a_seed_without_a_result_could_win_only_if_its_best_value_would() -> None:
    winner = candidate([0.9, 0.9])
    close, far, fallen = candidate([0.85], lacking=1), candidate([0.7], lacking=1), candidate([1.0], lacking=1, lost=1)
    rows = [far, winner, close, fallen]
    assert that_could_win(rows, winner, best_possible("test/top1", True), True) == [close], "(0.85 + 1) / 2 > 0.9"
    equal = candidate([0.8], lacking=1)
    assert that_could_win([winner, equal], winner, 1.0, True) == [], "the spec breaks the tie for the first"
    assert that_could_win([equal, winner], winner, 1.0, True) == [equal]


def test_the_best_value_that_a_run_could_have_is_that_of_its_metric() -> None:
    assert best_possible("test/top1", True) == 1 and best_possible("test/loss", False) == 0
    assert best_possible("reward", True) == math.inf and best_possible("regret", False) == -math.inf


def test_candidates_rank_by_results_then_by_seeds_lost_then_by_the_mean() -> None:
    best, worse, lost, lacking = candidate([0.5]), candidate([0.4]), candidate([0.9], lost=1), candidate([1.0], 1)
    rows = [lacking, lost, worse, best]
    assert sorted(rows, key=lambda row: rank_of(row, True)) == [best, worse, lost, lacking]
    assert sorted(rows, key=lambda row: rank_of(row, False)) == [worse, best, lost, lacking]
