"""Means, tests and intervals: against scipy, against answers worked out by hand, and what must never change them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from made import SPEC, by_lr, cell, sweep
from scipy import stats

from analysis.formats import edge_warnings, render
from analysis.frames import Pulled
from analysis.select import select
from analysis.stats import bootstrap_intervals, compare_means, z_score
from analysis.tables import row_verdicts
from trainer.config import TrialConfig
from trainer.registry import UserError

numbers = st.floats(-100, 100, allow_nan=False)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=12))
def test_the_paired_test_is_scipys(pairs: list[tuple[float, float]]) -> None:
    first, second = (dict(enumerate(values)) for values in zip(*pairs, strict=True))
    gaps = np.subtract(list(first.values()), list(second.values()))
    assume(gaps.std() > 1e-6)
    found = compare_means(first, second)
    expected = stats.ttest_rel(list(first.values()), list(second.values()))
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9, abs=1e-300) and found.test == "paired t"
    assert found.difference == pytest.approx(gaps.mean(), abs=1e-12) and found.n == len(pairs)


@given(st.lists(numbers, min_size=2, max_size=9), st.lists(numbers, min_size=2, max_size=9))
def test_unpaired_seeds_are_compared_by_welchs_test(a: list[float], b: list[float]) -> None:
    assume(np.std(a) > 1e-6 and np.std(b) > 1e-6)
    found = compare_means(dict(enumerate(a)), {f"other {i}": value for i, value in enumerate(b)})
    assert found.test == "Welch t"
    assert found.p == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9, abs=1e-300)


def test_a_paired_test_worked_out_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, std 1, t = 2 sqrt(3) = 3.464; p = 0.0742 of Student's t with 2 degrees."""
    found = compare_means({0: 11, 1: 22, 2: 33}, {0: 10, 1: 20, 2: 30})
    t = 2 * math.sqrt(3)
    assert found.difference == 2
    assert found.p == pytest.approx(1 - t / math.sqrt(t**2 + 2)), "the closed form for 2 degrees of freedom"
    assert not found.is_shown and "no test of 3 pairs comes below p = 0.25" in found.limit


def test_what_one_seed_cannot_show_is_said() -> None:
    found = compare_means({0: 1.0}, {0: 2.0})
    assert math.isnan(found.p) and not found.is_shown and found.limit.startswith("one seed shows no spread")
    assert compare_means({}, {0: 1.0}).test == "no value"
    assert compare_means(dict.fromkeys(range(6), 1.0) | {0: 1.5}, dict.fromkeys(range(6), 0.0)).limit == ""


def test_equal_differences_prove_nothing_and_no_difference_is_none() -> None:
    """Rounded accuracies of few images often differ all by the same: a spread of zero is not one that is known."""
    found = compare_means({0: 1.0, 1: 2.0}, {0: 0.5, 1: 1.5})
    assert math.isnan(found.p) and not found.is_shown and found.test == "every difference is the same"
    assert compare_means({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).p == 1


def test_a_z_score_worked_out_by_hand() -> None:
    assert z_score(91.0, 0.3, 3, 90.0, 0.4, 3) == pytest.approx(1 / math.sqrt((0.09 + 0.16) / 3))
    assert math.isnan(z_score(91.0, math.nan, 1, 90.0, 0.4, 3)) and math.isnan(z_score(91.0, 0, 0, 90.0, 0.4, 3))


def test_bootstrap_intervals_are_scipys_and_do_not_depend_on_the_company() -> None:
    groups = [[1.0, 2.0, 4.0], [5.0], [0.5, 0.25, 0.125], [3.0, 3.0, 3.0, 9.0]]
    found = bootstrap_intervals(groups)
    expected = stats.bootstrap(
        ([1.0, 2.0, 4.0],), np.mean, method="percentile", batch=500, rng=np.random.default_rng(0)
    ).confidence_interval
    assert found[0] == pytest.approx(tuple(expected)) and all(map(math.isnan, found[1]))
    assert bootstrap_intervals([[4.0, 1.0, 2.0]])[0] == found[0], "neither order nor neighbours matter"
    assert bootstrap_intervals([groups[3], groups[0]])[1] == found[0]
    assert bootstrap_intervals(groups, seed=1)[0] != (math.nan, math.nan)
    state = np.random.get_state()[1].tolist()  # type: ignore[index, union-attr]
    bootstrap_intervals(groups)
    assert np.random.get_state()[1].tolist() == state, "the global generator is not touched"  # type: ignore[index, union-attr]


def test_a_bootstrap_interval_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    intervals = bootstrap_intervals(rng.normal(size=(400, 30)).tolist())
    covered = sum(low <= 0 <= high for low, high in intervals) / 400
    assert 0.90 <= covered <= 0.98, "95 %, a little less for n = 30; 400 draws have a standard error of 1.1 %"


# What a choice says of itself.


def test_a_choice_says_by_how_much_it_won_and_over_what(tmp_path: Path) -> None:
    chosen = cell(select(sweep(tmp_path, by_lr)), 0.1, "constant")
    assert (chosen["runner_up"], chosen["candidates"], chosen["budget"]) == ("lr=1.0", 3, 9)
    assert chosen["margin"] == pytest.approx(0.10) and (chosen["ties"], chosen["edge"]) == (0, "")
    alone = cell(select(sweep(tmp_path / "other", by_lr)), 0.1, "polyak")
    assert math.isnan(alone["margin"]) and (alone["runner_up"], alone["budget"]) == ("", 3)


def test_ties_and_edges_are_said(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: [0.7] if c.lr == 0.1 else [0.8]))
    chosen = cell(selection, 0.1, "constant")
    assert (chosen["lr"], chosen["ties"], chosen["edge"], chosen["margin"]) == (0.01, 1, "lr", 0.0)
    text = render(selection, "markdown")
    assert "at the edge of its grid, so a better value may lie outside: constant lr" in text
    assert "ties, decided by the order in the spec: constant 1" in text
    assert edge_warnings(selection) == [
        "lr: in 2 of 4 cells the chosen value is at the edge of its grid; a better one may lie outside"
    ]


def test_the_best_is_compared_with_the_runner_up_over_seeds(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.rho == 0.4 and config.seed == 2 and config.scheduler == "polyak":
            return "diverged"
        return [0.9 + 0.01 * config.seed + (0.02 * (config.seed + 1) if config.scheduler == "polyak" else 0)]

    selection = select(sweep(tmp_path, score))
    first, second = row_verdicts(selection, selection.cells)
    assert (first.best, first.runner_up, first.comparison.test, first.comparison.n) == (
        "polyak",
        "constant",
        "paired t",
        3,
    )
    assert first.comparison.p == pytest.approx(stats.ttest_rel([0.92, 0.95, 0.98], [0.9, 0.91, 0.92]).pvalue)
    assert (second.comparison.test, second.comparison.n) == ("Welch t", 2), "one seed has no partner"


# What must never change a mean or a choice.


def reordered(pulled: Pulled, seed: int) -> Pulled:
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

    def table(one: Pulled) -> pd.DataFrame:
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


def on_validation(folder: Path, test: Callable[[TrialConfig, int], float]) -> Pulled:
    """A sweep that selects on held-out images; `test` is the test accuracy by config and epoch."""
    parameters = {**SPEC["parameters"], "val_fraction": {"value": 0.1}}
    pulled = sweep(folder, by_lr, parameters=parameters, metric={"name": "val/top1", "goal": "maximize"})
    from sweeps.store import Store

    store = Store(str(folder))
    for trial in store.launched("made").trials:
        rows = store.history(trial.trial_id)
        for row in rows:
            row["val/top1"], row["test/top1"] = row["test/top1"], test(trial.config, row["epoch"])
            row["test/loss"] = -row["test/top1"]
        store.write_history(trial.trial_id, rows)
    from analysis.pull import pull

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
