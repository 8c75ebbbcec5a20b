"""Searches whose results are made up."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from polysweep.analysis.data.frames import RunSet, SelectionRule
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.leaderboard import Leaderboard, leaderboard
from polysweep.analysis.tables.selection import Selection
from polysweep.trainer.config import TrialConfig
from tests.support.made import sweep

SEARCH: dict[str, Any] = {
    "method": "random",
    "run_cap": 60,
    "seeds": 2,
    "tuned": [],
    "parameters": {
        "task": {"value": "digits"},
        "model": {"value": "mlp"},
        "optimizer": {"values": ["usam", "sam"]},
        "rho": {"distribution": "log_uniform_values", "min": 0.01, "max": 1.0},
        "momentum": {"min": 0.0, "max": 0.9},
        "epochs": {"value": 3},
    },
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0}},
        {"scheduler": {"value": "polyak"}},
    ],
}


def by_momentum(config: TrialConfig) -> list[float] | str:
    """More momentum is better; seeds differ by 0.001; some seeds have other fates."""
    if config.rho and config.rho > 0.7:
        return "diverged" if config.seed else [0.4]
    if config.rho and config.rho < 0.0145:
        return "failed" if config.seed else [0.99]
    return [0.5 + 0.4 * (config.momentum or 0.0) + 0.001 * config.seed]


def search(folder: Path, **changes: Any) -> RunSet:
    """A random search of 30 points with two seeds; at the largest radii one diverges and one is stopped."""
    pulled = sweep(folder, by_momentum, **{**SEARCH, **changes})
    early = (pulled.runs["rho"] > 0.7) & (pulled.runs["seed"] == 0)
    return replace(pulled, runs=pulled.runs.assign(outcome=pulled.runs["outcome"].mask(early, "stopped")))


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    """What it scored."""
    return select(search(tmp_path_factory.mktemp("search")))


def board_of(metric: np.ndarray, **parameters: Any) -> Leaderboard:
    """The leaderboard of points with one finished seed each."""
    n = len(metric)
    names = tuple(parameters)
    runs = pd.DataFrame(
        {
            "trial_id": [f"t{at}" for at in range(n)], "sweep": "made", "outcome": "finished", "seed": 0, "epoch": 3,
            "numerics": 1, "best_epoch": 3, **parameters, "best/acc": metric, "last/acc": metric,
        }
    )  # fmt: skip
    rule = SelectionRule("made", "acc", "maximize", names, is_search=True)
    return leaderboard(select(RunSet(rule, runs, lambda _: None)))  # type: ignore[arg-type,return-value]


def peak(values: np.ndarray) -> np.ndarray:
    """What is best at 10^-2."""
    return np.array([-((math.log10(value) + 2) ** 2) for value in values])
