"""Seeds and looks that do not go together are refused at their line, before the spec is expanded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.trainer.errors import UserError
from tests.support.replicated_worlds import FIELDS, PROTOCOL, REPLICATE, problem_of


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"report_on": [2, 3, 4]},
            "also in tune_on: 2; a seed that has chosen the candidate makes its mean",
        ),
        ({"report_on": [2, 3, 4]}, "report on others, such as 3, 4, 5"),
        ({"tune_on": 3}, "protocol.tune_on: a list of seeds, such as [0, 1, 2] (got 3)"),
        ({"tune_on": [0, 0]}, "seed 0 is listed twice"),
        ({"report_on": []}, "a list of seeds, such as [0, 1, 2]"),
        ({"report_on": [-1]}, "greater than or equal to 0"),
        ({"retrain": "yes"}, "valid boolean"),
        ({"retrain": True}, "protocol.retrain: requires val_fraction > 0"),
        ({"budget": 4}, "it is for method: random, not grid"),
        ({"tuned_on": [1]}, "unknown key 'tuned_on' under 'protocol'"),
    ],
)
def test_a_protocol_that_cannot_be_followed_is_refused(change: dict[str, Any], reason: str) -> None:
    assert reason in problem_of(protocol={**PROTOCOL, **change})


@pytest.mark.parametrize(
    ("looks", "reason"),
    [
        ([5, 3], "must increase, but 3 comes after 5"),
        ([3, 3], "must increase, but 3 comes after 3"),
        ([1, 3], "greater than or equal to 2"),
        ([2, 5], "the first is at 2 seeds, but protocol.report_on has 3"),
        ([], "at least 1 item"),
        (3, "valid list"),
    ],
)
def test_looks_rise_from_the_seeds_that_there_are(looks: object, reason: str) -> None:
    assert reason in problem_of(replicate={**REPLICATE, "looks": looks})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seeds": 3}, "'seeds' beside 'protocol'"),
        ({"parameters": {**FIELDS["parameters"], "seed": {"values": [0, 1]}}}, "'seed' beside 'protocol'"),
        ({"tuned": None, "replicate": None}, "nothing is 'tuned'"),
        ({"metric": {"name": "test/top1", "goal": "maximize", "target": 0.9}, "replicate": None}, "metric.target ends"),
        ({"protocol": {**PROTOCOL, "budget": 4}, "method": "random", "run_cap": 9}, "run_cap beside protocol.budget"),
    ],
)
def test_what_contradicts_a_protocol_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert reason in problem_of(**changes)


def test_a_budget_needs_cells_that_can_be_listed() -> None:
    drawn = {**FIELDS["parameters"], "rho": {"min": 0.1, "max": 0.4}}
    message = problem_of(method="random", protocol={**PROTOCOL, "budget": 4}, parameters=drawn, replicate=None)
    assert "'rho': with protocol.budget what is not tuned makes cells" in message


@pytest.mark.parametrize("key", ["protocol", "replicate", "claims"])
def test_a_key_without_anything_is_not_taken_for_none(key: str) -> None:
    text = json.dumps({**FIELDS, "seeds": 3, key: None}, indent=1)
    with pytest.raises(UserError, match=rf"world\.yaml:\d+: {key}: is empty; leave it out"):
        SweepSpec.parse(text, "world.yaml")


def test_seeds_that_are_parameters_are_not_added_to() -> None:
    parameters = {**FIELDS["parameters"], "seed": {"values": [0, 1, 2]}}
    message = problem_of(protocol=None, tuned=None, parameters=parameters)
    assert "'seed' as a parameter beside 'replicate', which adds seeds: use seeds" in message


def test_candidates_of_bayes_need_a_protocol() -> None:
    message = problem_of(protocol=None, seeds=3, method="bayes", run_cap=9, tuned=["lr", "rho"],
                         metric={"name": "test/top1", "goal": "maximize"})  # fmt: skip
    assert "replicate: bayes proposes candidates of the cells" in message


def test_there_are_at_most_99_looks() -> None:
    assert "at most 99 items" in problem_of(replicate={**REPLICATE, "looks": list(range(3, 103))})


def test_seeds_that_early_termination_stops_are_not_averaged() -> None:
    message = problem_of(protocol=None, tuned=None, early_terminate={"type": "hyperband", "min_iter": 1}, seeds=3,
                      metric={"name": "test/top1", "goal": "maximize"})  # fmt: skip
    assert "with early_terminate a seed may be stopped for its results" in message
