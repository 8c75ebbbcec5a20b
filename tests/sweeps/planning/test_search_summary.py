"""What a plan says of a search: points, ranges, how they are proposed, when they are judged."""

from __future__ import annotations

import pytest

from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.planning.search_summary import in_words, per_point, search_summary
from polysweep.sweeps.spec.parameter import Parameter
from tests.support.specs import GOOD, parse

BAYES = (
    GOOD.replace("grid", "bayes")
    .replace("{values: [0.1, 0.2]}", "{min: 0.05, max: 0.4}")
    .replace("{value: 2}", "{value: 30}")
    .replace("{values: [1e-2, 0.1]}", "{distribution: log_uniform_values, min: 1.0e-4, max: 1.0}")
)


def summary(text: str) -> list[str]:
    return list(search_summary(plan(parse(text), {})))


def test_a_bayes_search_says_what_will_be_proposed_from_which_ranges_and_how() -> None:
    assert summary(BAYES + "run_cap: 90\nearly_terminate: {type: hyperband, min_iter: 3}\n") == [
        "bayes has proposed 0 of 30 points; 30 to come, each with 3 seeds: 90 trials",
        "drawn from: rho uniform from 0.05 to 0.4; with scheduler constant: lr log_uniform_values from 0.0001 to 1 | "
        "with scheduler polyak: nothing more",
        "the first 10 at random, until as many have ended; then as Optuna's TPE proposes by the results",
        "hyperband judges a point after epoch 3, 9, 27; about one of 3 continues",
    ]
    assert per_point(plan(parse(BAYES + "run_cap: 90\n"), {})) == "a stack of K = 3"
    assert per_point(plan(parse(BAYES + "run_cap: 90\nlaunch: {stack: 1}\n"), {})) == "3 stacks of K = 1"


def test_few_points_and_small_spaces_are_said() -> None:
    assert summary(BAYES + "run_cap: 30\n")[2].startswith("all of them at random: Optuna's TPE needs 10 points")
    small = summary(GOOD.replace("grid", "bayes") + "run_cap: 300\n")
    assert small[-1] == "there are 6 different points only, and the search ends with them"
    early = "early_terminate: {type: hyperband, min_iter: 3}\n"
    assert summary(GOOD + early) == ["hyperband never judges a point: a trial has too few epochs"]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"values": [1, 2]}, "one of 1, 2"),
        ({"values": [*range(10)]}, "one of 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
        ({"min": 1, "max": 5}, "int_uniform from 1 to 5"),
        ({"distribution": "log_uniform", "min": -2, "max": 0}, "log_uniform from 0.135335 to 1"),
        ({"distribution": "q_uniform", "min": 1, "max": 5, "q": 2}, "q_uniform from 2 to 4 in steps of 2"),
        ({"distribution": "normal"}, "normal with mu = 0, sigma = 1"),
        ({"distribution": "q_beta", "a": 2, "q": 0.1}, "q_beta with a = 2, b = 1 in steps of 0.1"),
    ],
)
def test_a_range_in_words(entry: dict[str, object], text: str) -> None:
    assert in_words(Parameter.model_validate(entry)) == text
