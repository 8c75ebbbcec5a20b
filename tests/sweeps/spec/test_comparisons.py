"""Pairs of cells that differ in one field and agree in all others that both have."""

from __future__ import annotations

from polysweep.sweeps.spec.comparisons import pairs_of
from polysweep.sweeps.spec.decisions import by_key
from polysweep.sweeps.spec.protocol import Replication
from tests.support.replicated_worlds import FIELDS, RHOS, world_spec


def test_each_radius_is_a_comparison_of_its_own() -> None:
    spec = world_spec()
    pairs = pairs_of(Replication(compare="scheduler", looks=[3]), spec.tuning_trials)
    assert [(pair.values, pair.where) for pair in pairs] == [(("polyak", "constant"), f"rho={rho}") for rho in RHOS]
    cells = by_key(spec.tuning_trials)
    for pair in pairs:
        one, other = cells[pair.better][0].cell, cells[pair.than][0].cell
        assert (one["scheduler"], other["scheduler"]) == pair.values and one["rho"] == other["rho"]


def test_all_pairs_of_a_field_with_several_values() -> None:
    pairs = pairs_of(Replication(compare="rho", looks=[3]), world_spec().tuning_trials)
    assert len(pairs) == 2 * 6 and {pair.where for pair in pairs} == {"scheduler=constant", "scheduler=polyak"}
    some = pairs_of(Replication(compare={"rho": [0.1, 0.4]}, looks=[3]), world_spec().tuning_trials)
    assert [pair.values for pair in some] == [(0.4, 0.1)] * 2


def test_a_cell_without_a_field_is_compared_with_each_value_of_it() -> None:
    capped = [FIELDS["variants"][0], {"scheduler": {"value": "polyak"}, "gamma_b": {"values": [0.5, 1.0]}}]
    pairs = pairs_of(Replication(compare="scheduler", looks=[3]), world_spec(variants=capped).tuning_trials)
    assert len(pairs) == 2 * len(RHOS) and pairs[0].where == "rho=0.1 gamma_b=0.5"
