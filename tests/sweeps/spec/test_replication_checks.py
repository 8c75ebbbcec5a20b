"""What is compared has to be there, be measured, and have a margin with a unit; each is refused at its line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polysweep.sweeps.spec.replication_checks import is_larger_better, reported_metric
from polysweep.sweeps.spec.spec import SweepSpec
from tests.support.replicated_worlds import FIELDS, PROTOCOL, REPLICATE, problem_of, world_spec


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"margin": 0.2}, "0.2 of an accuracy needs a unit: '0.2 points' are percentage points"),
        ({"margin": "0 points"}, "replicate.margin: must be > 0"),
        ({"margin": "-1 points"}, "a number >= 0, or such as '0.2 points'"),
        ({"margin": "0.2 points", "metric": "test/loss"}, "test/loss is no accuracy and has no points"),
        ({"metric": "tets/loss"}, "does not log 'tets/loss'; did you mean 'test/loss'?"),
        ({"metric": "val/top1"}, "'val/top1' is not measured, because val_fraction is 0"),
        ({"compare": "lr"}, "'lr' is tuned: cells are compared, after the choice in each"),
        ({"compare": "rhoo"}, "'rhoo' does not tell cells apart; did you mean 'rho'?"),
        (
            {"compare": {"scheduler": ["constant", "cosine"]}},
            "no cell has scheduler='cosine'; expected one of",
        ),
        ({"compare": {"scheduler": ["constant", "constant"]}}, "scheduler='constant' is listed twice"),
        ({"compare": {"rho": ["0.1", "0.2"]}}, "write the float 0.1 without quotes"),
        ({"compare": {"scheduler": ["constant"]}}, "expected a field such as scheduler, or one with values"),
        ({"compare": 5}, "expected a field such as scheduler, or one with values"),
        ({"level": 0}, "replicate.level: Input should be greater than or equal to 0.000001"),
        ({"max_trials": 47}, "replicate.max_trials: 47, but the first look at 3 seeds of 8 cells makes 72 trials"),
        ({"looks": None}, "replicate.looks"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict[str, Any], reason: str) -> None:
    assert reason in problem_of(replicate={**REPLICATE, **change})


def test_a_sweep_stays_within_what_a_sweep_can_have() -> None:
    assert "less than or equal to 10000" in problem_of(replicate={**REPLICATE, "looks": [3, 10**14]})
    many = {**FIELDS["parameters"], "rho": {"values": [at / 1000 for at in range(1, 102)]}}
    message = problem_of(parameters=many, replicate={**REPLICATE, "looks": [3, 10_000]})
    assert "replicate.looks: 2020000 trials at the last; a sweep has at most 1000000" in message


def test_cells_of_several_candidates_need_a_protocol() -> None:
    message = problem_of(protocol=None, seeds=3)
    assert "cell rho=0.1 scheduler=constant has 3 candidates" in message and "add protocol" in message


def test_fields_that_differ_together_are_not_compared() -> None:
    """Each scheduler at a radius of its own: two cells never differ in one field alone."""
    parameters = {name: value for name, value in FIELDS["parameters"].items() if name != "rho"}
    variants = [
        {"scheduler": {"value": "constant"}, "rho": {"value": 0.1}, "lr": {"value": 0.1}},
        {"scheduler": {"value": "polyak"}, "rho": {"value": 0.2}},
    ]
    message = problem_of(protocol=None, tuned=None, seeds=3, parameters=parameters, variants=variants)
    assert "no two cells differ in 'scheduler' alone" in message


def test_retrained_trials_share_one_val_fraction() -> None:
    parameters = {**FIELDS["parameters"], "val_fraction": {"values": [0.1, 0.2]}}
    message = problem_of(protocol={**PROTOCOL, "retrain": True}, parameters=parameters, replicate=None)
    assert "val_fraction has several values (0.1, 0.2)" in message


def test_a_search_whose_cells_are_not_known_is_not_replicated() -> None:
    message = problem_of(
        method="bayes", run_cap=9, metric={"name": "test/top1", "goal": "maximize"},
        parameters={**FIELDS["parameters"], "rho": {"min": 0.1, "max": 0.4}},
    )  # fmt: skip
    assert (
        "replicate: with method bayes the cells are known before the runs only if" in message and "add rho" in message
    )


def test_what_retrained_trials_report_is_measured_on_the_test_set() -> None:
    parameters = {**FIELDS["parameters"], "val_fraction": {"value": 0.2}}
    metric = {"name": "val/top1", "goal": "maximize"}
    spec = world_spec(parameters=parameters, metric=metric, protocol={**PROTOCOL, "retrain": True})
    assert reported_metric(spec) == "test/top1" and is_larger_better(spec, spec.kinds) is True
    of_loss = world_spec(replicate={**REPLICATE, "metric": "test/loss"})
    assert is_larger_better(of_loss, of_loss.kinds) is False


def test_a_foreign_name_of_what_is_compared_is_ours_after_renaming() -> None:
    fields = json.loads(json.dumps({**FIELDS, "protocol": PROTOCOL, "replicate": {**REPLICATE, "compare": "radius"}}))
    fields["parameters"]["radius"] = fields["parameters"].pop("rho")
    spec = SweepSpec.parse(json.dumps({**fields, "rename": {"radius": "rho"}}), "world.yaml")
    assert spec.replicate is not None and spec.replicate.field == "rho"
