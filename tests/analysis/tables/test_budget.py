"""Budget curves: the expected best of k candidates, against every draw of k; and methods that have none."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from polysweep.analysis.tables.budget import budget_curves
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.leaderboard import leaderboard
from polysweep.analysis.tables.selection import Selection
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.made import SPEC, by_lr, sweep
from tests.support.made_searches import searched as searched


def test_a_curve_is_the_mean_over_all_draws_of_k_candidates(tmp_path: Path) -> None:
    """The means of constant at rho = 0.1 are those of `by_lr`, 0.01 above its first seed; polyak has one candidate."""
    curves = budget_curves(select(sweep(tmp_path, by_lr)))
    constant = curves[(curves["rho"] == 0.1) & (curves["scheduler"] == "constant")]
    means = [base - 0.01 + 0.01 for base in (0.70, 0.90, 0.80)]
    for row in constant.to_dict("records"):
        best = [max(draw) for draw in combinations(means, row["k"])]
        assert row["expected"] == pytest.approx(fmean(best))
        assert (row["low"], row["high"]) == pytest.approx((min(best), max(best)))
        assert (row["candidates"], row["left_out"], row["n"], row["without_result"]) == (3, 0, 3, 0)
    assert constant["k"].tolist() == [1, 2, 3]
    assert constant["area"].tolist() == pytest.approx(np.cumsum(constant["expected"]) / [1, 2, 3])
    polyak = curves[(curves["rho"] == 0.1) & (curves["scheduler"] == "polyak")].to_dict("records")
    assert [(row["k"], row["expected"], row["area"]) for row in polyak] == [(1, pytest.approx(0.95), polyak[0]["area"])]


def test_of_a_method_that_was_only_tuned_more_the_curve_says_so(tmp_path: Path) -> None:
    """Both have candidates of one distribution, in 40 worlds: at an equal budget they are equal, at their own not."""
    rng = np.random.default_rng(0)
    rates = [round(0.01 * n, 2) for n in range(1, 10)]
    variants = [
        {"scheduler": {"value": "constant"}, "lr": {"values": rates}},
        {"scheduler": {"value": "cosine"}, "lr": {"values": rates[:3]}},
    ]
    worlds = {**SPEC["parameters"], "rho": {"values": [round(0.01 * n, 2) for n in range(1, 41)]}}
    made = sweep(tmp_path, lambda _: [rng.uniform(0.5, 0.9)], parameters=worlds, variants=variants, seeds=1)
    curves = budget_curves(select(made))
    constant, cosine = (curves[curves["scheduler"] == name] for name in ("constant", "cosine"))
    at_three, of_three = (rows[rows["k"] == 3]["expected"] for rows in (constant, cosine))
    assert len(at_three) == len(of_three) == 40
    assert abs(at_three.mean() - of_three.mean()) < 3 * np.hypot(at_three.std(), of_three.std()) / 40**0.5
    assert constant[constant["k"] == 9]["expected"].mean() > of_three.mean() + 0.05


def test_a_draw_without_any_result_has_no_value_and_is_counted(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        return "diverged" if config.lr == 1.0 else by_lr(config)

    curves = budget_curves(select(sweep(tmp_path, score)))
    constant = curves[(curves["rho"] == 0.1) & (curves["scheduler"] == "constant")]
    assert constant["without_result"].tolist() == pytest.approx([1 / 3, 0, 0])
    expectations = constant["expected"].tolist()
    assert np.isnan(expectations[0]) and expectations[1:] == pytest.approx([(0.9 + 0.9 + 0.7) / 3, 0.9])
    assert constant["area"].isna().all(), "an area that leaves out the draws without a result would reward them"


def test_a_cell_whose_candidates_lack_results_has_no_curve(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        return "failed" if (config.lr, config.rho, config.seed) == (1.0, 0.1, 2) else by_lr(config)

    curves = budget_curves(select(sweep(tmp_path, score)))
    cells = set(zip(curves["rho"], curves["scheduler"], strict=True))
    assert cells == {(0.1, "polyak"), (0.4, "constant"), (0.4, "polyak")}


def test_of_a_search_methods_are_told_apart_by_words_and_points_without_results_are_counted(
    searched: Selection,
) -> None:
    curves = budget_curves(searched)
    points = leaderboard(searched).points
    for (optimizer, scheduler), rows in curves.groupby(["optimizer", "scheduler"]):
        own = points[(points["optimizer"] == optimizer) & (points["scheduler"] == scheduler)]
        ranked = own[own["rank"].notna()]
        assert set(rows["candidates"]) == {len(ranked)} and set(rows["left_out"]) == {len(own) - len(ranked)}
        assert rows["expected"].iloc[-1] == pytest.approx(ranked["mean"].iloc[0])
    together = budget_curves(searched, by=["scheduler"])
    assert set(together["scheduler"]) == {"constant", "polyak"}
    with pytest.raises(UserError, match="'model' does not vary"):
        budget_curves(searched, by="model")
