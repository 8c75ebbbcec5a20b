"""What must never change a mean or a choice."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.tables.choice import select
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.made import SPEC, by_lr, cell, sweep

# What must never change a mean or a choice.


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


def on_validation(folder: Path, test: Callable[[TrialConfig, int], float]) -> RunSet:
    """A sweep that selects on held-out images; `test` is the test accuracy by config and epoch."""
    parameters = {**SPEC["parameters"], "val_fraction": {"value": 0.1}}
    pulled = sweep(folder, by_lr, parameters=parameters, metric={"name": "val/top1", "goal": "maximize"})
    from polysweep.sweeps.store.store import Store

    store = Store(str(folder))
    for trial in store.launched("made").trials:
        rows = store.history(trial.trial_id)
        for row in rows:
            row["val/top1"], row["test/top1"] = row["test/top1"], test(trial.config, row["epoch"])
            row["test/loss"] = -row["test/top1"]
        store.write_history(trial.trial_id, rows)
    from polysweep.analysis.data.pulling import pull

    return pull(pulled.protocol.name, store=store, cache=folder / "cache")


def test_scrambled_test_columns_never_change_a_choice_by_validation(tmp_path: Path) -> None:
    def scrambled(seed: int) -> Callable[[TrialConfig, int], float]:
        rng = np.random.default_rng(seed)
        return lambda _config, _epoch: float(rng.random())

    chosen = []
    for seed in range(6):
        pulled = on_validation(tmp_path / str(seed), scrambled(seed))
        for metric in ("val/top1", "test/top1"):
            selection = select(pulled, metric=metric)
            assert selection.selected_on == "val"
            chosen.append((selection.cells["selected"].tolist(), selection.values["best_epoch"].tolist()))
    assert all(choice == chosen[0] for choice in chosen)
    backwards = replace(pulled, runs=pulled.runs.iloc[::-1].reset_index(drop=True))
    first, same = (select(one, metric="val/top1", by="test/top1").cells for one in (pulled, backwards))
    assert sorted(first["mean"]) == sorted(same["mean"]), "whatever the order of the rows"
    other = select(pulled, metric="test/top1", by="test/top1")
    assert other.selected_on == "test" and other.values["best_epoch"].tolist() != chosen[0][1]


def test_another_metric_may_select(tmp_path: Path) -> None:
    def fall(config: TrialConfig, epoch: int) -> float:
        return 0.5 + 0.1 * (config.lr == 0.01) - 0.01 * epoch

    pulled = on_validation(tmp_path, fall)
    by_test = select(pulled, metric="test/top1", by="test/top1")
    assert cell(by_test, 0.1, "constant")["lr"] == 0.01
    assert set(by_test.values["best_epoch"]) == {1}
    assert cell(by_test, 0.1, "constant")["mean"] == pytest.approx(0.59)
    assert cell(select(pulled, metric="test/top1"), 0.1, "constant")["lr"] == 0.1


def test_means_are_exactly_those_of_python(tmp_path: Path) -> None:
    values = {0: 0.1, 1: 0.2, 2: 0.30000000000000004}
    chosen = cell(select(sweep(tmp_path, lambda c: [values[c.seed]])), 0.1, "polyak")
    assert chosen["mean"] == statistics.fmean(values.values()) and chosen["std"] == statistics.stdev(values.values())


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
