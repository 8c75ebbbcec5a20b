"""Robustness scores."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from polysweep.analysis.figures.scores import robustness_scores
from polysweep.analysis.tables.choice import select
from polysweep.trainer.config import TrialConfig
from tests.support.made import sweep


def test_a_robustness_score_is_the_drop_from_the_smallest_radius_to_the_largest(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.scheduler == "polyak" and config.rho == 0.4:
            return "diverged"
        return [0.9 - (config.rho or 0) * (0.1 + 0.01 * config.seed)]

    found = robustness_scores(select(sweep(tmp_path, score))).set_index("scheduler")
    constant = found.loc["constant"]
    assert constant["drop"] == pytest.approx(0.3 * 0.11) and (constant["smallest_rho"], constant["n"]) == (0.1, 3)
    assert constant["low"] < constant["drop"] < constant["high"]
    assert found.loc["polyak", "diverged"] and pd.isna(found.loc["polyak", "drop"])
    rising = robustness_scores(select(sweep(tmp_path / "up", lambda c: [0.5 + (c.rho or 0) + 0.01 * c.seed])))
    assert (rising["drop"] < 0).all(), "not chosen by the results, so it may be negative"
