"""The paper's statements on the curves of a small sweep, from the Store and from W&B."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest

from polysweep import pull, select
from polysweep.analysis.theory.checks import checks, methods, pairs_of, verdicts
from polysweep.analysis.theory.curves import MethodCurve
from polysweep.analysis.theory.lines import lines_of
from polysweep.sweeps.store.store import Store
from polysweep.trainer.convex import bounds
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, as_runs


def test_every_statement_of_the_paper_is_checked_on_a_curve_that_it_speaks_of(lines: list[MethodCurve]) -> None:
    found = checks(lines)
    numbers = {re.match(r"\w+ (\d\.\d)", statement).group(1) for statement in found["statement"]}  # type: ignore[union-attr]
    assert numbers == {"3.1", "3.2", "3.4", "3.5", "3.6", "3.7", "3.8"}
    assert set(found["verdict"]) == {"holds", "vacuous"} and (found["n"] == 5).all()
    for which in ("gamma", "descent", "lemmas"):
        assert (found[f"violations {which}"] == 0).all()
    assert not any(line.statements for line in lines if not line.is_ours and "constant" not in line.label)


@pytest.mark.parametrize(
    ("formula", "other", "statement"),
    [
        ("rate", lambda *_: 0.5, "Theorem 3.1"),
        ("rate", lambda *_: 0.5, "Corollary 3.6"),
        ("neighbourhood", lambda *_: -1e6, "Theorem 3.5"),
        ("neighbourhood", lambda *_: -1e6, "Corollary 3.7"),
        ("cesaro", lambda *_: -1e6, "Theorem 3.8, convex"),
        ("cesaro", lambda *_: -1e6, "Theorem 3.8, interpolation"),
        ("cesaro", lambda *_: -1e6, "Theorem 3.8, constant step size"),
        ("alpha", lambda *given: 1e3 * given[-1], "Theorem 3.2"),
    ],
)
def test_a_statement_with_a_wrong_formula_does_not_hold(
    small: Path, tmp_path: Path, formula: str, other: Callable[..., float], statement: str
) -> None:
    pulled = pull("theory-small", store=Store(str(small)), cache=tmp_path)
    with mock.patch.object(bounds, formula, other):
        fresh = lines_of(select(pulled, epoch="last"))
        found = checks(fresh)
        wrong = found[found["statement"].str.startswith(statement)]
        told = verdicts(fresh)
    assert (wrong["verdict"] == "does not hold").all(), wrong
    assert any(f"{statement}" in text and "does not hold for" in text for text in told)


def test_a_limit_that_is_not_reached_and_violations_are_told(lines: list[MethodCurve]) -> None:
    line = next(one for one in lines if one.decreases)
    worse = line.history.assign(**{"suboptimality/relative": 0.5, "violations/descent": 2.0})
    broken = MethodCurve(line.label, line.title, line.problem, line.batch_size, line.cell, line.run, worse)
    told = verdicts([broken])
    assert any("10 violations of the descent bound" in text for text in told)
    assert [broken.verdict(statement) for statement in broken.statements] == ["not reached yet"], "it may yet come down"
    assert not any("Theorem 3.4" in text for text in told)


def test_the_winner_its_budget_and_whom_it_beats(lines: list[MethodCurve]) -> None:
    table = methods(lines)
    ridge = table[table["problem"] == "ridge consistent=True lambda_r=0.0, full batches"]
    assert ridge[ridge["best"]]["method"].tolist() == [ridge.sort_values("iterations 1e-10")["method"].iloc[0]]
    assert ridge[ridge["best"]]["method"].str.startswith("usam polyak-deterministic").all()
    tuned = ridge[ridge["method"] == "lightsam-i rho=0.1 lr=10.0"].iloc[0]
    assert (tuned["budget"], tuned["n"]) == (10, 5), "the other step size diverges, and counts as a run"
    assert "lr" in tuned["edge"]
    told = " ".join(verdicts(lines))
    assert re.search(
        r"rho=2.5 reaches 1e-10 after \d+ iterations \(n = 5\): "
        r"ahead of khanh2024 \(by at least \d+ \[\d+, \d+\], p [=<] \S+\)",
        told,
    )
    assert "corollary 3.7 permits at the radius of andriushchenko2022" in told
    assert re.search(r"ends at \S+ after 300 steps \(n = 5\): .*andriushchenko2022 \S+ \(by -?\d\S* \[", told)
    assert "lr = 10 is at the edge of its grid of 2 candidates" in told
    assert "usam polyak rho=0.1: the cap is active in 100.0% of the steps: this is the constant step size" in told


@pytest.mark.usefixtures("fresh_client")
def test_the_same_tables_come_from_wandb(
    small: Path, lines: list[MethodCurve], wandb_server: Wandb, tmp_path: Path
) -> None:
    store = Store(str(small))
    wandb_server.load("p", as_runs(store, "theory-small"))
    pulled = pull(f"{ADDRESS}/theory-small", store=store, cache=tmp_path)
    theirs = lines_of(select(pulled, epoch="last"))
    pd.testing.assert_frame_equal(methods(theirs), methods(lines), check_exact=True)
    pd.testing.assert_frame_equal(checks(theirs), checks(lines), check_exact=True)
    assert verdicts(theirs) == verdicts(lines)


def test_a_rival_is_told_apart_by_the_interval_of_the_difference_alone(lines: list[MethodCurve]) -> None:
    ours = next(one for one in lines if one.label == "usam polyak-deterministic rho=2.5")
    rival = next(one for one in lines if one.label == "khanh2024" and one.title == ours.title)
    ours = replace(ours, candidates={})
    mine = ours.iterations(1e-10)[0]

    def against(*counts: float) -> str:
        by_seed = dict(zip(rival.history["trial_id"].unique(), counts, strict=True))
        hits = {"iterations/1e-10": rival.history["trial_id"].map(by_seed)}
        other = replace(rival, label="a rival", history=rival.history.assign(**hits), candidates={})
        (text,) = [text for text in verdicts([ours, other]) if "reaches 1e-10" in text]
        return text.partition("(n = 5): ")[2]

    assert against(3, 4, 5, 6, 7).startswith("behind a rival (by -")
    assert against(*(count + 500 for count in mine)).startswith("ahead of a rival (by 500 [")
    assert against(*(count + 5 for count in mine)).startswith("not told from a rival (by 5 [-"), (
        "5 are within the noise"
    )


def test_bold_and_sentences_are_of_one_family(lines: list[MethodCurve]) -> None:
    table = methods(lines)
    best = table[table["best"]].set_index("problem")["method"]
    for race in pairs_of(lines):
        if race.line.label == best[race.line.title] and race.result == "ahead of":
            (row,) = table[(table["method"] == race.rival.label) & (table["problem"] == race.rival.title)].to_dict(
                "records"
            )
            assert not row["marked"], row
