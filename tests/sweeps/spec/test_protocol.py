"""A protocol and a replication by themselves: in words, their seeds, and what no look may change."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from polysweep.sweeps.spec.protocol import Protocol, Replication, more_seeds, seeds_text


def test_a_protocol_names_its_seeds() -> None:
    assert str(Protocol(tune_on=[0, 1, 2], report_on=[3, 4, 5, 6, 7])) == (
        "tuned on seeds 0, 1, 2, reported on seeds 3 to 7"
    )
    again = Protocol(tune_on=[0], report_on=[7, 3], retrain=True)
    assert str(again) == "tuned on seeds 0, reported on seeds 7, 3 (retrained on train + val, last epoch)"
    assert (seeds_text([1, 2, 3]), seeds_text([5, 6, 7, 9])) == ("1, 2, 3", "5, 6, 7, 9")


def test_seeds_are_added_in_order_without_those_in_use() -> None:
    seeds = more_seeds([0, 2, 5])
    assert [next(seeds) for _ in range(4)] == [1, 3, 4, 6]


def test_a_replication_compares_all_values_of_a_field_or_some() -> None:
    cells = [{"scheduler": "constant"}, {"scheduler": "polyak", "gamma_b": 1.0}, {"rho": 0.1}]
    every = Replication(compare="scheduler", looks=[3, 5])
    assert (every.field, every.values(cells)) == ("scheduler", ["constant", "polyak"])
    some = Replication(compare={"gamma_b": [1.0, 2.0]}, looks=[3, 5])
    assert (some.field, some.values(cells)) == ("gamma_b", [1.0, 2.0])


def test_the_plan_is_everything_but_the_most_trials() -> None:
    plan = Replication(compare="scheduler", looks=[3, 5], margin="0.2 points", max_trials=9).plan()
    assert plan == {"compare": "scheduler", "looks": [3, 5], "level": 0.05, "margin": "0.2 points", "metric": ""}
    assert Replication.model_validate(plan).plan() == plan, "as the Store has it"


def test_a_frozen_plan_is_not_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Replication(compare="scheduler", looks=[3, 5]).level = 0.5
