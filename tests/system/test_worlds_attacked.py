"""What an attack on the analysis found, each with the right answer."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.published.claims import SAFEGUARD
from polysweep.analysis.published.comparison import compare
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.mean_std import row_verdicts
from polysweep.analysis.tables.statistics import FAILS, mean_interval
from polysweep.sweeps.planning.welch import Sample, difference
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.problem import ridge
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.made import SPEC, sweep
from tests.support.worlds import (
    PUBLISHED,
    SMALL,
)

# What an attack found, each with the right answer.


def test_seeds_that_were_stopped_early_are_not_diverged(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        return [0.9 + 0.001 * config.seed] if config.scheduler == "polyak" else "failed"

    variants = [{"scheduler": {"value": "constant"}, "lr": {"value": 0.1}}, {"scheduler": {"value": "polyak"}}]
    pulled = sweep(tmp_path, score, variants=variants, seeds=10)
    stopped = pulled.runs["outcome"].replace("failed", "stopped")
    selection = select(replace(pulled, runs=pulled.runs.assign(outcome=stopped)))
    for verdict in row_verdicts(selection, selection.cells):
        assert not verdict.is_shown and verdict.difference.reason == "a cell has no finished seed"
        assert "nan" not in verdict.text(["rho"], "test/top1")


def test_runs_that_were_never_planned_are_not_missing(tmp_path: Path) -> None:
    """Five seeds of one step size, three of another, all finished."""
    variants = [
        {"scheduler": {"value": "constant"}, "lr": {"value": 0.1}, "seed": {"values": [0, 1, 2, 3, 4]}},
        {"scheduler": {"value": "constant"}, "lr": {"value": 0.01}, "seed": {"values": [0, 1, 2]}},
    ]
    text = {key: value for key, value in SPEC.items() if key != "seeds"}
    spec = SweepSpec.parse(json.dumps({**text, "variants": variants}), "unequal.yaml")
    store = Store(str(tmp_path))
    store.write_sweep(spec)
    for trial in spec.trials:
        rows = [{**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": e, "step": e, "partial": False,
                 "test/top1": trial.value("lr") + 0.001 * trial.seed} for e in (1, 2, 3)]  # fmt: skip
        store.write_history(trial.trial_id, rows)
        store.write_record(trial.trial_id, {"outcome": "finished", "width": 1, "epoch": 3, "seconds": 1.0})
    cells = select(pull(spec.name, store=store, cache=tmp_path / "cache")).cells
    assert set(cells["undecided"]) == {""} and set(cells["n"]) == {5} and set(cells["budget"]) == {8}


def test_what_another_set_chose_pays_nothing_for_the_choice(tmp_path: Path) -> None:
    """A candidate that the held-out images rejected has no say in the verdict on the test images."""

    def score(config: TrialConfig) -> list[float]:
        return [{0.1: 0.60, 0.01: 0.95, 1.0: 0.5, None: 0.85}[config.lr] + 0.002 * config.seed]

    pulled = sweep(tmp_path, score)
    chosen = pulled.runs["lr"].map({0.1: 0.9}).astype("double[pyarrow]").fillna(0.5)
    runs = pulled.runs.assign(**{"best/val/top1": chosen, "last/val/top1": chosen, "val_fraction": 0.1})
    protocol = replace(pulled.protocol, metric="val/top1")
    selection = select(replace(pulled, runs=runs, protocol=protocol), metric="test/top1")
    for verdict in row_verdicts(selection, selection.cells):
        assert (verdict.best, verdict.is_shown, len(verdict.marked)) == ("polyak", True, 1)


def test_the_safeguard_is_counted_over_every_candidate(tmp_path: Path) -> None:
    capped = {"scheduler": {"value": "polyak"}, "gamma_b": {"values": [1.0, 10.0, 100.0]}}
    variants = [*SMALL["variants"][:2], capped]
    pulled = sweep(tmp_path, lambda c: [0.9 - 0.1 * (c.gamma_b != 1.0)], **{**SMALL, "variants": variants,
                   "tuned": ["lr", "lr_min", "gamma_b"]})  # fmt: skip
    calm = pulled.runs["gamma_b"].eq(1.0).fillna(False)
    shares = replace(pulled, runs=pulled.runs.assign(zero_share=np.where(calm, 0.01, 0.6)))
    (claim,) = [one for one in compare(shares, PUBLISHED).claims if one.claim == SAFEGUARD and one.where == "usam"]
    assert claim.verdict == FAILS and claim.detail.startswith("24 of 36 trials")


def test_a_sweep_without_a_finished_tuned_trial_is_drawn_and_reported(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: [0.9] if c.scheduler == "polyak" else "failed"))
    assert {one.name.partition("-")[0] for one in figures(selection)} >= {"robustness", "stability"}


def test_a_search_whose_ranges_allow_a_cosine_that_rises_is_refused_before_it_starts() -> None:
    ranges = {"scheduler": {"value": "cosine"}, "lr": {"min": 0.3, "max": 1.0}, "lr_min": {"min": 0.0, "max": 0.5}}
    search = {**SPEC, "method": "bayes", "run_cap": 9, "variants": [ranges], "tuned": ["lr", "lr_min"]}
    with pytest.raises(UserError, match=r"lr_min: 0\.49\d* is not below lr = 0\.30"):
        SweepSpec.parse(json.dumps(search), "bayes.yaml")
    apart = {**ranges, "lr_min": {"min": 0.0, "max": 0.2}}
    assert SweepSpec.parse(json.dumps({**search, "variants": [apart]}), "bayes.yaml").corners


def test_values_without_spread_have_no_interval() -> None:
    assert all(map(math.isnan, mean_interval(Sample.of([1.0, 1.0, 1.0]))))
    assert difference([[Sample(math.inf, math.nan, 3)]], [[Sample(1.0, 0.1, 3)]]).reason == "a value is not finite"


def test_a_gaussian_matrix_needs_no_condition_and_has_none() -> None:
    assert ridge(3, 5, 10.0, 0.1, consistent=False, problem_seed=0, matrix="gaussian").d == 5
    assert ridge(3, 1, 10.0, 0.0, consistent=True, problem_seed=0, matrix="gaussian").d == 1
    with pytest.raises(UserError, match=r"task_options.condition: 3 is of matrix 'conditioned'; leave it out"):
        ridge(9, 5, 3.0, 0.0, consistent=True, problem_seed=0, matrix="gaussian")
