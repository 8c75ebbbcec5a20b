"""One choice per cell: the best mean over seeds, whatever the order of the rows; and what cannot be averaged."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, SPEC, by_lr, cell, foreign, sweep


def test_the_best_mean_over_seeds_is_chosen_per_cell(tmp_path: Path) -> None:
    chosen = cell(select(sweep(tmp_path, by_lr)), 0.1, "constant")
    assert (chosen["lr"], chosen["selected"], chosen["n"], chosen["candidates"]) == (0.1, "lr=0.1", 3, 3)
    values = [0.89, 0.90, 0.91]
    assert chosen["mean"] == pytest.approx(statistics.fmean(values))
    assert chosen["std"] == pytest.approx(statistics.stdev(values)), "sample std, ddof = 1"


def test_last_epoch_and_another_metric(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    last = render(select(pulled, epoch="last"), "markdown")
    assert "at the last epoch" in last and "85.00 +- 1.00" in last
    loss = render(select(pulled, metric="test/loss"), "markdown")
    assert "0.1000 +- 0.0100" in loss and "**0.0500 +- 0.0100**" in loss, "not percent, and the lowest is best"


def test_a_metric_to_minimise_selects_the_lowest(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr, metric={"name": "test/loss", "goal": "minimize"})
    assert cell(select(pulled), 0.1, "constant")["lr"] == 0.1


def test_words_may_be_tuned(tmp_path: Path) -> None:
    parameters = {**SPEC["parameters"], "rho_schedule": {"values": ["constant", "inverse"]}}
    selection = select(sweep(tmp_path, by_lr, parameters=parameters, tuned=["lr", "rho_schedule"]))
    assert cell(selection, 0.1, "constant")["selected"] == "lr=0.1 rho_schedule=constant"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "test/top3"}, "--metric: unknown metric 'test/top3'; did you mean 'test/top"),
        ({"metric": "val/top1"}, "--metric: val/top1 was not measured"),
        ({"epoch": "first"}, "--epoch: 'first'; expected best or last"),
    ],
)
def test_a_wrong_choice_is_named(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        select(sweep(tmp_path, by_lr), **options)
    with pytest.raises(UserError, match="--format: 'pdf'; expected one of csv, html, latex, markdown"):
        render(select(sweep(tmp_path / "other", by_lr)), "pdf")


accuracies = st.lists(st.floats(0, 1), min_size=1, max_size=3)


@pytest.mark.parametrize("examples", [10, pytest.param(200, marks=pytest.mark.long)])
def test_means_are_of_finished_seeds_only_and_every_seed_is_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(st.lists(st.one_of(accuracies, st.sampled_from(["diverged", "failed", "new"])), min_size=24, max_size=24))
    def holds(fates: list) -> None:
        given_fates = iter(fates)
        pulled = sweep(tmp_path_factory.mktemp("store"), lambda _: next(given_fates))
        selection = select(pulled)
        for row in selection.cells.to_dict("records"):
            assert row["n"] + row["diverged"] + row["failed"] + row["stopped"] + row["missing"] == row["seeds"] == 3
        best = {run["trial_id"]: run["best/test/top1"] for run in pulled.runs.to_dict("records")}
        for keys, group in selection.values.groupby(["rho", "scheduler"]):
            finished = [best[t] for t in group[group["outcome"] == "finished"]["trial_id"]]
            row = cell(selection, *keys)
            assert row["n"] == len(finished)
            assert pd.isna(row["mean"]) if not finished else row["mean"] == pytest.approx(statistics.fmean(finished))
        chosen = selection.candidates[selection.candidates["rank"] == 1]
        merged = selection.candidates.merge(chosen, on=["rho", "scheduler"], suffixes=("", "_chosen"))
        complete = (merged["failed"] + merged["missing"] == 0) & (
            merged["failed_chosen"] + merged["missing_chosen"] == 0
        )
        assert (merged["n"] <= merged["n_chosen"])[complete].all()
        for row in selection.cells.to_dict("records"):
            assert not (row["undecided"] and row["candidates"] > 1) or (pd.isna(row["mean"]) and row["selected"] == "")

    holds()


@pytest.mark.usefixtures("fresh_client")
def test_two_runs_of_a_seed_and_seeds_that_nobody_named_are_said(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    unnamed = {
        **MAPPED,
        "mapping": {"rho": "optimizer.radius", "scheduler": "optimizer.name"},
        "ignore": ["host", "random_seed"],
    }
    with pytest.raises(UserError, match=r"2 runs of seed None: .*; --map seed=FIELD names the field that has the seed"):
        select(pull(ADDRESS, cache=tmp_path, **unnamed))


def reordered(pulled: RunSet, seed: int) -> RunSet:
    """The same runs in another order, with their histories."""
    order = np.random.default_rng(seed).permutation(len(pulled.runs))
    return replace(pulled, runs=pulled.runs.iloc[order].reset_index(drop=True))


scores = st.lists(st.one_of(st.floats(0, 1), st.sampled_from(["diverged", "failed"])), min_size=24, max_size=24)


@settings(max_examples=15)
@given(scores, st.integers(0, 99))
def test_shuffled_rows_and_renamed_seeds_change_no_number(
    tmp_path_factory: pytest.TempPathFactory, fates: list[float | str], seed: int
) -> None:
    drawn = iter(fates)

    def score(_: TrialConfig) -> list[float] | str:
        fate = next(drawn)
        return fate if isinstance(fate, str) else [fate]

    pulled = sweep(tmp_path_factory.mktemp("store"), score)
    before = select(pulled)
    numbers = ["rho", "scheduler", "n", "mean", "std", "diverged", "failed", "seeds"]

    def table(one: RunSet) -> pd.DataFrame:
        found = select(one)
        keep = found.candidates[[*numbers, "lr"]].sort_values(["rho", "scheduler", "lr"])
        return keep.reset_index(drop=True)

    pd.testing.assert_frame_equal(table(pulled), table(reordered(pulled, seed)), check_exact=False, rtol=1e-15)
    renamed = replace(pulled, runs=pulled.runs.assign(seed=(pulled.runs["seed"] * 7 + 3).astype("int64[pyarrow]")))
    pd.testing.assert_frame_equal(before.cells[numbers], select(renamed).cells[numbers])


@settings(max_examples=15)
@given(st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_a_diverged_run_more_changes_no_mean(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    changes = {
        "seeds": 2,
        "variants": [{"scheduler": {"value": "constant"}, "lr": {"value": 0.1}}, SPEC["variants"][1]],
    }

    def with_(extra: str | None) -> pd.DataFrame:
        given_values = iter(values)

        def score(config: TrialConfig) -> list[float] | str:
            return extra if extra and config.seed == 2 else [next(given_values)]

        seeds = {"seeds": 3} if extra else {}
        return select(sweep(tmp_path_factory.mktemp("store"), score, **{**changes, **seeds})).cells

    plain, more = with_(None), with_("diverged")
    numbers = ["rho", "scheduler", "n", "mean", "std"]
    pd.testing.assert_frame_equal(plain[numbers], more[numbers])
    assert (more["diverged"] == 1).all() and (plain["diverged"] == 0).all()


def test_a_cell_of_several_lengths_or_versions_is_refused(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    for column, other, message in (("epoch", 5, "epochs: 3 (such as"), ("numerics", 9, "NUMERICS: 1 (such as")):
        values = [1 if column == "numerics" else 3] * len(pulled.runs)
        values[0] = other
        with pytest.raises(UserError, match=r"cell rho=0.1 scheduler=constant mixes runs of") as raised:
            select(replace(pulled, runs=pulled.runs.assign(**{column: values})))
        assert message in str(raised.value) and "cannot be averaged" in str(raised.value)


def test_two_runs_of_one_seed_are_refused(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    doubled = replace(pulled, runs=pd.concat([pulled.runs, pulled.runs.iloc[:1]], ignore_index=True))
    with pytest.raises(UserError, match=r"cell rho=0.1 scheduler=constant: 2 runs of seed 0: "):
        select(doubled)


def test_the_nll_of_a_classification_is_its_loss(tmp_path: Path) -> None:
    made = sweep(tmp_path, by_lr)
    assert select(made, metric="test/nll").metric == "test/loss" and select(made, by="test/nll").by == "test/loss"
    with pytest.raises(UserError, match="--metric: unknown metric 'dev/nll'"):
        select(made, metric="dev/nll")


def test_the_calibration_of_a_candidate_that_was_not_chosen_is_no_rival(tmp_path: Path) -> None:
    """The accuracy chooses: another candidate may be better calibrated because it has learned nothing."""
    made = sweep(tmp_path, by_lr)
    made = replace(made, runs=made.runs.assign(**{f"{epoch}/test/ece": 0.1 for epoch in ("best", "last")}))
    counts = {
        metric: max(len(samples) for samples in select(made, metric=metric).samples.values())
        for metric in ("test/top1", "test/loss", "test/ece")
    }
    assert counts == {"test/top1": 3, "test/loss": 3, "test/ece": 1}


@pytest.mark.parametrize("metric", ["curvature/trace", "test/noise-3"])
def test_what_no_probe_has_measured_yet_is_said_to_be_measured_by_one(metric: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"unknown metric '{metric}'; `polysweep probe made` measures it; "):
        select(sweep(tmp_path, by_lr), metric=metric)
