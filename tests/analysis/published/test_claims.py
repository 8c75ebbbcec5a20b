"""The claims of the paper: which of our runs show them, which show the opposite, and which show nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.published.claims import NO_RUNS
from polysweep.trainer.config import TrialConfig
from tests.support.made import sweep
from tests.support.published import CIFAR, as_published, compared, verdicts


def test_claims_hold_where_they_are_shown(tmp_path: Path) -> None:
    found = compared(sweep(tmp_path, as_published, **CIFAR))
    assert verdicts(found, "Polyak is the best") == {"holds": 4}
    assert verdicts(found, "cosine falls off") == {"holds": 1}
    assert verdicts(found, "Polyak drops less") == {"holds": 1}
    assert verdicts(found, "0.1 is the best constant") == {"holds": 1}
    summary = {(row["claim"], row["dataset"]): row for row in found.summary() if row["reading"] == "top-1"}
    row = summary["Polyak is the best of its row", "cifar10"]
    assert (row["published"], row["verdicts"]) == ("32 of 32", "4 holds, 28 no runs")


def against(score: Callable[[TrialConfig], Any]) -> Callable[[TrialConfig], Any]:
    """The paper's roles turned round: cosine steady and ahead, Polyak falling."""

    def turned(config: TrialConfig) -> Any:
        swap = {"cosine": "polyak", "polyak": "cosine"}
        other = config.model_copy(update={"scheduler": swap.get(config.scheduler, config.scheduler), "lr_min": None})
        return score(other)

    return turned


def test_claims_fail_where_the_opposite_is_shown(tmp_path: Path) -> None:
    found = compared(sweep(tmp_path, against(as_published), **CIFAR))
    for claim in ("Polyak is the best", "Polyak drops less"):
        assert set(verdicts(found, claim)) == {"fails"}


def test_a_difference_that_chance_explains_is_not_shown(tmp_path: Path) -> None:
    def noisy(config: TrialConfig) -> list[float]:
        ahead = 0.001 if config.scheduler == "polyak" else 0.0
        return [0.9 + ahead + (0.02, -0.015, 0.003)[(config.seed + len(config.scheduler)) % 3]]

    found = compared(sweep(tmp_path, noisy, **CIFAR))
    assert verdicts(found, "Polyak is the best") == {"not shown": 4}


def test_an_undecided_cell_has_no_verdict(tmp_path: Path) -> None:
    """A failed seed of the leading step size: its row is undecided, and so is what is said of the step size."""

    def score(config: TrialConfig) -> list[float] | str:
        return "failed" if (config.rho, config.lr, config.seed) == (0.1, 0.1, 2) else as_published(config)

    found = compared(sweep(tmp_path, score, **CIFAR))
    assert verdicts(found, "Polyak is the best") == {"undecided": 1, "holds": 3}
    assert verdicts(found, "0.1 is the best constant") == {"undecided": 1}
    row = found.cells[(found.cells["rho"] == 0.1) & (found.cells["top-1 n"] > 0)].iloc[0]
    assert row["top-1 text"].startswith("undecided: lr=0.1 ") and math.isnan(row["top-1 difference"])


def test_three_seeds_that_diverged_against_three_that_did_not_show_nothing(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.scheduler == "cosine" and (config.rho or 0) > 0.3:
            return "diverged"
        return "new" if config.scheduler == "constant" and config.rho == 0.1 else as_published(config)

    found = compared(sweep(tmp_path, score, **CIFAR))
    of_row = {
        one.where[-7:]: one.verdict
        for one in found.claims
        if "best of" in one.claim and one.dataset == "cifar10" and one.verdict != NO_RUNS
    }
    assert of_row == {"rho 0.1": "undecided", "rho 0.2": "holds", "rho 0.3": "holds", "rho 0.4": "not shown"}
    told = next(one for one in found.claims if "cosine falls off" in one.claim and one.verdict != NO_RUNS)
    assert told.verdict == "not shown" and told.difference.p == pytest.approx(0.1), "Fisher's exact test, 3 against 3"

    def ten(config: TrialConfig) -> list[float] | str:
        fate = score(config.model_copy(update={"seed": config.seed % 3}))
        return [fate[0] + 1e-4 * config.seed] if isinstance(fate, list) else fate

    found = compared(sweep(tmp_path / "ten", ten, **{**CIFAR, "seeds": 10}))
    told = next(one for one in found.claims if "cosine falls off" in one.claim and one.verdict != NO_RUNS)
    assert told.verdict == "holds"


def test_what_cannot_be_told_is_not_a_failure(tmp_path: Path) -> None:
    """0.1 was never tried, and n = 1 shows nothing."""
    other = [{"scheduler": {"value": "constant"}, "lr": {"values": [0.001, 0.01]}}, *CIFAR["variants"][1:]]  # type: ignore[misc]
    found = compared(sweep(tmp_path, as_published, **{**CIFAR, "variants": other}))
    step = next(one for one in found.claims if "0.1 is the best constant" in one.claim and one.verdict != NO_RUNS)
    assert step.verdict == "not shown" and "not every radius has 0.1 and another step size" in step.detail
    one_seed = compared(sweep(tmp_path / "one", as_published, **{**CIFAR, "seeds": 1}))
    assert verdicts(one_seed, "Polyak is the best") == {"not shown": 4}
    assert all(
        "n = 1" in one.detail for one in one_seed.claims if one.verdict == "not shown" and "safe" not in one.claim
    )


def test_the_safeguard_is_judged_over_all_polyak_trials(tmp_path: Path) -> None:
    """Every epoch of the made runs has zero_share 0.5, in 12 trials. With none, 12 are too few to call it rare."""
    pulled = sweep(tmp_path, as_published, **CIFAR)
    (claim,) = [one for one in compared(pulled).claims if "safeguard" in one.claim and one.verdict != NO_RUNS]
    assert (claim.verdict, claim.where) == ("fails", "usam") and "12 of 12 trials have gamma = 0" in claim.detail
    calm = replace(pulled, runs=pulled.runs.assign(zero_share=0.01))
    (claim,) = [one for one in compared(calm).claims if "safeguard" in one.claim and one.verdict != NO_RUNS]
    assert claim.verdict == "not shown" and "below 5% by +5.00 [-21.46, +5.00]" in claim.detail
