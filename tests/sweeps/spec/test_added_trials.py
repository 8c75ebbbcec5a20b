"""Which trials decisions add: seeds, cells, sizes, and how many there are in all."""

from __future__ import annotations

from polysweep.sweeps.spec.added_trials import all_seeds, chosen_trial, rounds, total_trials
from polysweep.sweeps.spec.decisions import Choice, Decisions, by_key
from tests.support.replicated_worlds import FIELDS, PROTOCOL, REPLICATE, world_spec

ONE_EACH = [{"scheduler": {"value": "constant"}, "lr": {"value": 0.1}}, {"scheduler": {"value": "polyak"}}]


def test_reporting_seeds_come_first_then_the_least_that_are_free() -> None:
    spec = world_spec(protocol={"tune_on": [0, 1, 7], "report_on": [5, 3, 4]})
    assert all_seeds(spec, 8) == [5, 3, 4, 2, 6, 8, 9, 10]
    plain = world_spec(protocol=None, variants=ONE_EACH, tuned=None, seeds=[4, 0, 2])
    assert all_seeds(plain, 5) == [4, 0, 2, 1, 3]


def test_a_sweep_without_a_protocol_grows_from_its_own_seeds() -> None:
    spec = world_spec(protocol=None, variants=ONE_EACH, tuned=None, seeds=2)
    added = [trial for trial in spec.trials if trial.is_added]
    assert len(spec.tuning_trials) == 16 and [trial.seed for trial in added] == [2] * 8, "to the first look"
    assert [trial.trial_id for trial in spec.trials[:16]] == [trial.trial_id for trial in spec.tuning_trials]


def test_nothing_is_added_before_a_cell_has_chosen() -> None:
    spec = world_spec()
    assert spec.trials == spec.tuning_trials
    cell, members = next(iter(by_key(spec.tuning_trials).items()))
    assert chosen_trial(spec, members, Decisions(), cell) is None
    chosen = Decisions({cell: Choice(cell, members[3].trial_id)})
    assert chosen_trial(spec, members, chosen, cell) == members[3]
    assert chosen_trial(spec, members, Decisions({cell: Choice(cell, "gone")}), cell) is None
    added = [trial for trial in spec.with_decisions(chosen).trials if trial.is_added]
    assert [(t.seed, t.values["lr"], t.cell) for t in added] == [(s, 0.05, members[3].cell) for s in (3, 4, 5)]


def test_retrained_trials_hold_nothing_out() -> None:
    parameters = {**FIELDS["parameters"], "val_fraction": {"value": 0.25}}
    spec = world_spec(parameters=parameters, protocol={**PROTOCOL, "retrain": True}, replicate=None,
                      metric={"name": "val/top1", "goal": "maximize"})  # fmt: skip
    cell, members = next(iter(by_key(spec.tuning_trials).items()))
    after = spec.with_decisions(Decisions({cell: Choice(cell, members[0].trial_id)}))
    added = [trial for trial in after.trials if trial.is_added]
    assert len(added) == 3 and not any(trial.value("val_fraction") for trial in added)
    assert {trial.signature for trial in added}.isdisjoint({members[0].signature}), "another training set"
    assert added[0].cell == members[0].cell


def test_the_whole_sweep_stays_within_its_most_trials() -> None:
    spec = world_spec(replicate={**REPLICATE, "max_trials": 72})
    sizes = rounds(spec, spec.tuning_trials, Decisions())
    assert total_trials(spec, spec.tuning_trials, sizes) == 48 + 8 * 3
    assert [set(of_round.values()) for of_round in sizes] == [{3}, {3}]
