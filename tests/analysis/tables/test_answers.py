"""Claims that were made before the runs, answered: in worlds of known truth, and by hand."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.report.html import render_report
from polysweep.analysis.report.wandb_report import markdown_parts
from polysweep.analysis.tables.answers import answers
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.statistics import compare_means, holm
from polysweep.sweeps.planning.welch import LEVEL
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.preregistered import freeze_claims
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from tests.support.made import SPEC, Score, sweep

CLAIM: dict[str, Any] = {"better": {"scheduler": "polyak"}, "than": {"scheduler": "constant"}}
ONE_EACH = [{"scheduler": {"value": "constant"}, "lr": {"value": 0.1}}, {"scheduler": {"value": "polyak"}}]


def claimed(folder: Path, score: Score, *claims: object, **changes: object) -> RunSet:
    """A sweep with claims, as a launch leaves it."""
    whole = {"claims": list(claims), "variants": ONE_EACH, "tuned": [], **changes}
    spec = SweepSpec.parse(json.dumps({**SPEC, **whole}), "made.yaml")
    freeze_claims(Store(str(folder)).files, "made", spec.preregistration, 0)
    return sweep(folder, score, **whole)


def by_scheduler(config: TrialConfig) -> list[float]:
    """Polyak is better by 2 points at rho = 0.1 and by 0.5 at 0.4."""
    gain = {0.1: 0.02, 0.4: 0.005}[config.rho or 0.1] if config.scheduler == "polyak" else 0.0
    return [0.9 + gain + 0.001 * config.seed]


def test_a_claim_holds_if_every_comparison_shows_more_and_fails_if_one_shows_less(tmp_path: Path) -> None:
    point = {**CLAIM, "by": "1 points"}
    of_claims = answers(claimed(tmp_path, by_scheduler, CLAIM, point, {**point, "over": {"rho": [0.1]}}))
    assert [one.verdict for one in of_claims] == ["holds", "fails", "holds"]
    constant, polyak = ([base + 0.001 * seed for seed in range(3)] for base in (0.9, 0.905))
    weakest = compare_means(polyak, constant)
    first = of_claims[0]
    assert [one.where for one in first.comparisons] == ["rho=0.1", "rho=0.4"]
    assert first.tested.p_above == pytest.approx(weakest.p_above)
    assert first.tested.estimate == pytest.approx(0.005) and first.tested.low == pytest.approx(weakest.low)
    assert [one.p for one in of_claims] == holm([one.tested.p for one in of_claims])
    shifted = compare_means(polyak, [one + 0.01 for one in constant])
    assert of_claims[1].tested.p_below == pytest.approx(2 * shifted.p_below), "of two comparisons one is below"
    assert of_claims[1].comparisons[1].difference.estimate == pytest.approx(0.005), "as it is, not less what is claimed"


def test_a_loss_is_better_if_it_is_less(tmp_path: Path) -> None:
    (one,) = answers(claimed(tmp_path, by_scheduler, {**CLAIM, "metric": "test/loss", "by": 0.001}))
    assert one.verdict == "holds" and one.comparisons[0].difference.estimate == pytest.approx(0.02)
    assert one.rows()[0][:2] == ["rho=0.1", "0.0200"]


@pytest.mark.parametrize(
    ("outcome", "verdict", "why"),
    [("new", "no runs", ""), ("failed", "undecided", ""), ("diverged", "fails", "p < 0.0001")],
)
def test_a_claim_about_cells_without_results_is_not_answered(
    tmp_path: Path, outcome: str, verdict: str, why: str
) -> None:
    """Ten seeds that diverged against ten that finished are worse, by Fisher's test."""

    def score(config: TrialConfig) -> list[float] | str:
        return outcome if outcome == "new" or config.scheduler == "polyak" else by_scheduler(config)

    (one,) = answers(claimed(tmp_path, score, CLAIM, seeds=10))
    assert one.verdict == verdict and one.why.startswith(why)


def test_a_claim_that_cannot_be_answered_yet_counts_for_the_others(tmp_path: Path) -> None:
    """Else a verdict would be taken back once it can."""
    one, two = ({**CLAIM, "over": {"rho": [rho]}} for rho in (0.1, 0.4))
    whole = answers(claimed(tmp_path / "whole", by_scheduler, one, two))

    def score(config: TrialConfig) -> list[float] | str:
        return "failed" if (config.rho, config.seed) == (0.4, 0) else by_scheduler(config)

    part = answers(claimed(tmp_path / "part", score, one, two))
    assert [answer.verdict for answer in part] == ["holds", "undecided"]
    assert part[0].p == pytest.approx(2 * part[0].tested.p) and part[0].p >= whole[0].p


def test_a_comparison_that_cannot_be_tested_shows_nothing_and_hides_no_failure(tmp_path: Path) -> None:
    """At rho = 0.1 no value differs from another; at 0.4 Polyak is far behind."""

    def score(config: TrialConfig) -> list[float]:
        worse = 0.2 if (config.rho, config.scheduler) == (0.4, "polyak") else 0.0
        return [0.9 - worse + (0.001 * config.seed if config.rho == 0.4 else 0.0)]

    (one,) = answers(claimed(tmp_path, score, CLAIM))
    assert one.verdict == "fails" and one.comparisons[0].difference.reason == "no spread"
    assert one.tested.p_above == 1.0
    assert one.tested.p_below == pytest.approx(2 * one.comparisons[1].difference.p_below)
    (hopeful,) = answers(claimed(tmp_path / "other", lambda c: [0.9 + 0.1 * (c.scheduler == "polyak")], CLAIM))
    assert (hopeful.verdict, hopeful.why) == ("not shown", "no spread")


def test_cells_without_a_finished_seed_fail_a_claim_of_more_too(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        return "diverged" if config.scheduler == "polyak" else by_scheduler(config)

    of_claims = answers(claimed(tmp_path, score, CLAIM, {**CLAIM, "by": "1 points"}, seeds=8))
    assert [one.verdict for one in of_claims] == ["fails", "fails"]
    back = {"better": CLAIM["than"], "than": CLAIM["better"]}
    of_claims = answers(claimed(tmp_path / "back", score, back, {**back, "by": "1 points"}, seeds=8))
    assert [one.verdict for one in of_claims] == ["holds", "not shown"], "by how much is not known"


def test_claims_that_cannot_be_read_are_named_and_hide_no_number(tmp_path: Path) -> None:
    pulled = claimed(tmp_path, by_scheduler, CLAIM)
    path = tmp_path / "sweeps/made/preregistered.json"
    path.write_text(path.read_text().replace("polyak", "cosine", 1))
    again = pull("made", store=Store(str(tmp_path)), cache=None)
    assert answers(again) == [] and again.runs["trial_id"].tolist() == pulled.runs["trial_id"].tolist()
    assert "The claims cannot be read: " in render_report(select(again))


def test_a_sweep_without_claims_has_no_answers(tmp_path: Path) -> None:
    pulled = claimed(tmp_path, by_scheduler)
    assert answers(pulled) == [] and "Claims made before" not in render_report(select(pulled))
    assert "Claims made before the runs" not in markdown_parts(select(pulled))


def test_reports_begin_with_the_answers_and_call_all_else_exploratory(tmp_path: Path) -> None:
    selection = select(claimed(tmp_path, by_scheduler, CLAIM, {**CLAIM, "by": "1 points"}))
    page = render_report(selection)
    assert page.index("Claims made before the runs") < page.index('id="summary"')
    assert "they are exploratory" in page and '<td class="holds">holds</td>' in page
    title, *_ = parts = markdown_parts(selection)
    assert title == "Claims made before the runs" and len(parts[title]) == 4
    assert "| scheduler=polyak beats scheduler=constant on test/top1" in parts[title][1]
    assert "| rho=0.4 | 0.50" in parts[title][2]


@pytest.mark.parametrize("worlds", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_in_worlds_in_which_it_is_not_more_than_claimed_at_most_one_in_twenty_reports_is_wrong(
    tmp_path: Path, worlds: int
) -> None:
    """Three claims at once, all at their border: nothing differs in two, in the third by just what is claimed."""
    cosine = {"scheduler": {"value": "cosine"}, "lr": {"value": 0.1}, "lr_min": {"value": 0.01}}
    made = claimed(
        tmp_path, by_scheduler, {**CLAIM, "by": "1 points"}, {"better": {"scheduler": "cosine"}, "than": CLAIM["than"]},
        {"better": {"rho": 0.1}, "than": {"rho": 0.4}, "over": {"scheduler": ["cosine"]}}, variants=[*ONE_EACH, cosine],
    )  # fmt: skip
    rng, runs = np.random.default_rng(0), made.runs
    means = 0.9 + 0.01 * (runs["scheduler"] == "polyak").to_numpy(dtype=float)
    counts: Counter[bool] = Counter()
    for _ in range(worlds):
        values = pd.array(rng.normal(means, 0.004), dtype=runs["best/test/top1"].dtype)
        of_claims = answers(replace(made, runs=runs.assign(**{"best/test/top1": values})))
        counts[any(one.verdict in ("holds", "fails") for one in of_claims)] += 1
    assert counts[True] <= stats.binom.ppf(0.999, worlds, LEVEL), counts
