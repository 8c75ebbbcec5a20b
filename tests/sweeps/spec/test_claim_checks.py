"""Claims that a sweep cannot answer are refused before anything starts, each at its line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.yaml_lines import SpecError
from tests.support.made import SPEC

GOOD: dict[str, Any] = {"better": {"scheduler": "polyak"}, "than": {"scheduler": "constant"}}


def spec(*claims: object, **changes: object) -> SweepSpec:
    return SweepSpec.parse(json.dumps({**SPEC, **changes, "claims": list(claims)}, indent=1), "claims.yaml")


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"better": {"scheduler": "polyak"}}, "claims.0.than: Field required"),
        ({**GOOD, "bye": 1}, "unknown key 'bye' under 'claims'; did you mean 'by'"),
        ("polyak", "claims: expected {better: ..., than: ...}, not 'polyak'"),
        ({**GOOD, "better": {}}, "claims.0.better: Dictionary should have at least 1 item"),
        ({**GOOD, "better": {"scheduler": ["polyak"]}}, "a single value"),
        ({**GOOD, "than": {"optimizer": "sam"}}, "'better' is about 'scheduler', 'than' about 'optimizer'"),
        ({**GOOD, "than": {"scheduler": "polyak"}}, "'better' and 'than' are the same cells"),
        ({"better": {"lr": 0.1}, "than": {"lr": 1.0}}, "'lr' is tuned: a claim is about cells"),
        ({"better": {"seed": 0}, "than": {"seed": 1}}, "'seed' does not tell cells apart; expected one of rho, sched"),
        ({**GOOD, "over": {"rho": ["0.1"]}}, "no cell that is compared has the text '0.1' as rho: write the float 0.1"),
        ({**GOOD, "better": {"scheduler": "x" * 3000}}, "no cell has scheduler='xxx"),
        ({**GOOD, "better": {"scheduler": "polyac"}}, "no cell has scheduler='polyac'; did you mean 'polyak'"),
        ({**GOOD, "over": {"rho": [0.1, 0.7]}}, "no cell that is compared has rho=0.7; expected one of 0.1, 0.4"),
        ({**GOOD, "over": {"scheduler": ["polyak"]}}, "'scheduler' is in 'over' and in 'better'; give it once"),
        ({**GOOD, "over": {"epochs": [3]}}, "'epochs' does not tell cells apart"),
        ({**GOOD, "over": {"rho": []}}, "claims.0.over.rho: Value should have at least 1 item"),
        ({**GOOD, "metric": "test/top2"}, "task 'digits' does not log 'test/top2'; did you mean"),
        ({**GOOD, "metric": "val/top1"}, "metric 'val/top1' requires val_fraction > 0"),
        ({**GOOD, "by": 0.2}, "0.2 of an accuracy needs a unit: '0.2 points' are percentage points"),
        ({**GOOD, "by": "0.1 points", "metric": "test/loss"}, "test/loss is no accuracy and has no points"),
        (
            {**GOOD, "by": "much"},
            "claims.0.by: a number >= 0, or such as '0.2 points', at most 100 of them (got 'much')",
        ),
    ],
)
def test_a_claim_that_cannot_be_answered_is_refused_at_its_line(claim: object, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec(claim)
    first, *rest = str(caught.value).splitlines()
    assert not rest and words in first, first
    assert int(first.split(":")[1]) > 30, "a line of the claims, which are last"


def test_claims_that_it_can_answer_are_kept_with_their_metric() -> None:
    kept = spec(GOOD, {**GOOD, "metric": "test/loss", "by": 0.01, "over": {"rho": [0.4]}}).preregistration
    assert [claim.metric for claim in kept.claims] == ["test/top1", "test/loss"]
    assert spec().preregistration.claims == ()


def test_a_claim_that_is_given_twice_is_refused_and_nothing_of_it_fills_a_page() -> None:
    with pytest.raises(SpecError, match="given twice: 'scheduler=polyak beats"):
        spec(GOOD, {**GOOD, "by": "0 points", "metric": "test/top1"})
    with pytest.raises(SpecError) as caught:
        spec({**GOOD, "better": {"scheduler": "x" * 3000}})
    assert len(str(caught.value)) < 300


def test_names_of_the_file_are_renamed_in_claims_too() -> None:
    rename = {"radius": "rho", "accuracy": "test/top1", "rule": "scheduler"}
    parameters = {name: entry for name, entry in SPEC["parameters"].items() if name != "rho"}
    made = spec(
        {"better": {"rule": "polyak"}, "than": {"rule": "constant"}, "metric": "accuracy", "over": {"radius": [0.1]}},
        rename=rename, parameters={**parameters, "radius": {"values": [0.1, 0.4]}},
        metric={"name": "accuracy", "goal": "maximize"},
        variants=[{"rule": {"value": "constant"}, "lr": {"value": 0.1}}, {"rule": {"value": "polyak"}}], tuned=[],
    )  # fmt: skip
    (claim,) = made.preregistration.claims
    assert str(claim) == "scheduler=polyak beats scheduler=constant on test/top1 (rho in 0.1)"


def test_of_a_bayes_search_all_that_is_searched_must_be_tuned() -> None:
    """Else its cells are not known before the runs."""
    variants = [
        {"scheduler": {"value": "constant"}, "lr": {"min": 0.1, "max": 1.0}},
        {"scheduler": {"value": "polyak"}},
    ]
    bayes: dict[str, Any] = {"method": "bayes", "run_cap": 6, "variants": variants}
    with pytest.raises(SpecError, match="all that is searched is in 'tuned'; add rho"):
        spec(GOOD, **bayes, tuned=["lr"])
    assert spec(GOOD, **bayes, tuned=["lr", "rho"]).preregistration.claims
    with pytest.raises(SpecError, match="no cell has scheduler='bogus'"):
        spec({**GOOD, "better": {"scheduler": "bogus"}}, **bayes, tuned=["lr", "rho"])


def test_a_sweep_whose_points_are_its_cells_compares_none_of_them() -> None:
    drawn = {"method": "random", "run_cap": 6, "tuned": [], "variants": [{"scheduler": {"values": ["polyak"]}}]}
    parameters = {**SPEC["parameters"], "rho": {"min": 0.1, "max": 0.4}, "optimizer": {"values": ["usam", "sam"]}}
    with pytest.raises(SpecError, match="no two cells of this sweep are compared by it"):
        spec({"better": {"optimizer": "usam"}, "than": {"optimizer": "sam"}}, **drawn, parameters=parameters)


def test_retrained_trials_are_claimed_about_on_the_test_set() -> None:
    changes: dict[str, Any] = {
        "metric": {"name": "val/top1", "goal": "maximize"},
        "parameters": {**SPEC["parameters"], "val_fraction": {"value": 0.2}},
        "protocol": {"tune_on": [0, 1], "report_on": [2, 3], "retrain": True},
    }
    fields = {name: value for name, value in SPEC.items() if name != "seeds"}
    kept = SweepSpec.parse(json.dumps({**fields, **changes, "claims": [GOOD]}), "claims.yaml").preregistration
    assert [claim.metric for claim in kept.claims] == ["test/top1"]
    with pytest.raises(SpecError, match="metric 'val/top1' is not measured by retrained trials"):
        claims = [{**GOOD, "metric": "val/top1"}]
        SweepSpec.parse(json.dumps({**fields, **changes, "claims": claims}), "claims.yaml")
