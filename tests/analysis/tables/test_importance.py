"""Which parameters mattered: known truths are found, and nothing else at the nominal rate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from polysweep.analysis.tables.importance import _correct, _smallest, _tested, importance
from tests.support.made_searches import board_of, peak


def drawn(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "lr": 10 ** generator.uniform(-4, 0, n),
        "momentum": generator.uniform(0, 1, n),
        "batch": generator.choice([32, 64, 128], n),
        "act": generator.choice(["relu", "gelu"], n).astype(object),
    }


def test_the_one_parameter_of_four_that_matters_is_shown() -> None:
    for name, metric, verdict in (
        ("momentum", lambda p: -p["momentum"], "shown: smaller is better"),
        ("lr", lambda p: peak(p["lr"]), "shown: best at "),
        ("act", lambda p: np.where(p["act"] == "gelu", 1.0, 0.0), "shown: its values differ, the best is gelu"),
    ):
        parameters = drawn(40, 4)
        noise = np.random.default_rng(1).normal(0, 0.05, 40)
        answer = importance(board_of(metric(parameters) + noise, **parameters))
        rows = answer.parameters.set_index("parameter")
        assert rows.index[0] == name and rows.loc[name, "verdict"].startswith(verdict)
        assert rows.loc[name, "importance"] > 0.5 and answer.is_predictive and answer.explained > 0.5
        assert (rows["verdict"].drop(name) == "not shown").all() and (rows["importance"].drop(name) < 0.2).all()
        assert any(line.startswith(f"  {name}: {verdict}") for line in answer.lines()), answer.lines()


def test_spearman_is_of_the_metric_and_its_p_value_is_corrected() -> None:
    parameters = drawn(12)
    metric = parameters["momentum"] + np.random.default_rng(2).normal(0, 0.3, 12)
    row = importance(board_of(metric, momentum=parameters["momentum"])).parameters.iloc[0]
    expected = spearmanr(parameters["momentum"], metric)
    assert row["spearman"] == pytest.approx(expected.statistic) and row["n"] == 12
    assert expected.pvalue <= row["p_spearman"] <= 2 * expected.pvalue + 1e-12, "Holm, of two tests"


def test_noise_is_not_shown_at_the_nominal_rate() -> None:
    generator = np.random.default_rng(3)
    for n in (10, 25):
        wrong = 0
        for _ in range(120):
            ranks = generator.permutation(n) + 1.0
            ranks[ranks > 0.7 * n] = n  # points that diverged are equal
            columns = [list(generator.random(n)), list(generator.random(n)), list(generator.choice(["a", "b"], n))]
            rows = [_tested(column, ranks, -1) for column in columns]
            _correct(rows)
            wrong += min(map(_smallest, rows)) < 0.05
        assert wrong / 120 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 120)


def test_a_forest_that_explains_nothing_shows_no_importance() -> None:
    answer = importance(board_of(np.random.default_rng(7).normal(size=30), **drawn(30, 8)))
    assert not answer.is_predictive and answer.parameters["importance"].isna().all()
    assert (answer.parameters["verdict"] == "not shown").all()
    assert answer.lines()[-1].startswith("importance: not shown")


def test_too_few_points_and_parameters_of_one_value_are_not_tested() -> None:
    few = importance(board_of(np.arange(9.0), lr=np.arange(9.0) + 1))
    assert "10 points with all results needed" in few.lines()[0] and not len(few.parameters) and "from 9" in repr(few)
    assert "equally good" in importance(board_of(np.ones(12), lr=np.arange(12.0))).reason
    names = [f"run-{at}" for at in range(12)]
    some = [float(at) if at < 5 else None for at in range(12)]
    answer = importance(
        board_of(np.arange(12.0), lr=np.arange(12.0), folder=names, gamma_b=some, huge=[10.0**300] * 12)
    )
    verdicts = answer.parameters.set_index("parameter")["verdict"]
    assert verdicts["lr"] == "shown: larger is better"
    assert verdicts["folder"] == "not tested: 12 values in 12 points" and verdicts["gamma_b"].endswith(
        "5 points have it"
    )
    assert verdicts["huge"] == "not tested: it has one value"


def test_the_answer_is_the_same_each_time() -> None:
    board = board_of(peak(drawn(20)["lr"]), **drawn(20))
    assert importance(board).lines() == importance(board).lines()
