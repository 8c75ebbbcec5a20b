"""What results decide: in worlds of known truth in memory, and step by step in a Store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.planning.decide import decided, open_pairs, settled
from polysweep.sweeps.spec.decisions import BETTER, BOTH_DIVERGE, EQUIVALENT, OPEN, Decisions
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.states import State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.replicated_worlds import (
    LOOKS,
    PROTOCOL,
    REPLICATE,
    RHOS,
    World,
    most_by_chance,
    rates,
    run_world,
    verdicts,
    world_spec,
)


def equal(_: Mapping[str, Any]) -> tuple[float, float]:
    return 0.9, 0.01


def polyak_is_better(values: Mapping[str, Any]) -> tuple[float, float]:
    return (0.93 if values["scheduler"] == "polyak" else 0.9), 0.01


def test_the_best_candidate_of_each_cell_reports_on_its_own_seeds() -> None:
    def truth(values: Mapping[str, Any]) -> tuple[float, float]:
        return {0.1: 0.8, 0.05: 0.95, 0.025: 0.7, None: 0.9}[values.get("lr")], 0.01

    spec = run_world(world_spec(replicate=None), truth, 0)
    reports = [trial for trial in spec.trials if trial.is_added]
    assert [(t.values["rho"], t.values.get("lr"), t.seed) for t in reports] == [
        (rho, lr, seed) for lr in (0.05, None) for rho in RHOS for seed in PROTOCOL["report_on"]
    ]
    assert {choice.selected for choice in spec.decisions.choices.values()} == {"lr=0.05", ""}
    assert all(trial.cell.keys() == {"rho", "scheduler"} for trial in spec.trials)


def test_a_clear_difference_is_decided_early_and_only_open_cells_get_seeds() -> None:
    def truth(values: Mapping[str, Any]) -> tuple[float, float]:
        return polyak_is_better(values) if values["rho"] < 0.3 else equal(values)

    spec = run_world(world_spec(), truth, 1)
    after = verdicts(spec)
    assert [after[f"rho={rho}"].verdict for rho in RHOS] == [BETTER, BETTER, OPEN, OPEN]
    counts = {rho: sum(t.is_added and t.values["rho"] == rho for t in spec.trials) for rho in RHOS}
    assert counts[0.3] == counts[0.4] == 2 * LOOKS[-1] and counts[0.1] < 2 * LOOKS[-1]
    seeds = [t.seed for t in spec.trials if t.is_added and t.values["rho"] == 0.4 and t.values["scheduler"] == "polyak"]
    assert seeds == list(range(3, 3 + LOOKS[-1])), "never one that has tuned"
    assert len({trial.trial_id for trial in spec.trials}) == len(spec.trials)
    assert [look.seeds for look in spec.decisions.looks] == list(LOOKS)
    assert open_pairs(spec) == []


def test_equal_cells_are_equivalent_within_a_margin() -> None:
    spec = run_world(world_spec(replicate={**REPLICATE, "margin": "3 points"}), equal, 2)
    assert {one.verdict for one in verdicts(spec).values()} == {EQUIVALENT}


def test_nothing_is_decided_before_all_has_ended() -> None:
    spec = world_spec()
    trials = {trial.trial_id: trial for trial in spec.trials}
    states = {trial_id: TrialState(State.FINISHED) for trial_id in trials}
    world: Any = World(equal, 0, trials)
    for state in (State.NEW, State.RUNNING, State.INTERRUPTED):
        assert decided(spec, world, {**states, next(iter(states)): TrialState(state)}, keep=False) is spec


def test_a_failed_seed_that_could_change_the_choice_holds_its_cell_back() -> None:
    spec = world_spec()
    trials = {trial.trial_id: trial for trial in spec.trials}
    states = {trial_id: TrialState(State.FINISHED) for trial_id in trials}
    world: Any = World(equal, 0, trials)
    failed = next(i for i, t in trials.items() if t.values["scheduler"] == "polyak")
    after = decided(spec, world, {**states, failed: TrialState(State.FAILED)}, keep=False)
    assert len(after.decisions.choices) == 7, "all other cells have chosen"
    world.trials = {trial.trial_id: trial for trial in after.trials}
    states = {i: TrialState(State.FINISHED) for i in world.trials} | {failed: TrialState(State.FAILED)}
    assert decided(after, world, states, keep=False) is after, "and no look is made without it"


def test_a_failed_reporting_seed_holds_the_look_back() -> None:
    spec = world_spec()
    world: Any = World(equal, 0, {trial.trial_id: trial for trial in spec.trials})
    chosen = decided(spec, world, {i: TrialState(State.FINISHED) for i in world.trials}, keep=False)
    world.trials = {trial.trial_id: trial for trial in chosen.trials}
    states = {i: TrialState(State.FINISHED) for i in world.trials}
    added = next(trial.trial_id for trial in chosen.trials if trial.is_added)
    assert decided(chosen, world, states | {added: TrialState(State.FAILED)}, keep=False) is chosen
    assert len(decided(chosen, world, states, keep=False).decisions.looks) == 1


def test_diverged_candidates_are_not_chosen_and_cells_that_all_diverge_are_not_run_for_ever() -> None:
    spec = run_world(world_spec(), equal, 0, lambda trial: trial.values.get("lr") == 0.1)
    assert "lr=0.1" not in {choice.selected for choice in spec.decisions.choices.values()}
    all_diverge = run_world(world_spec(), equal, 0, lambda _: True)
    assert {one.verdict for one in verdicts(all_diverge).values()} == {BOTH_DIVERGE}
    assert len(all_diverge.decisions.looks) == 1


def test_max_trials_ends_it_with_what_is_open() -> None:
    limited = world_spec(replicate={**REPLICATE, "max_trials": 100})
    spec = run_world(limited, equal, 0)
    assert len(spec.trials) == 48 + 8 * 5 and len(spec.decisions.looks) == 2, "16 x 5 more would be 128"
    assert len(open_pairs(spec)) == 4
    raised = world_spec(replicate={**REPLICATE, "max_trials": 500}).with_decisions(spec.decisions)
    assert len(raised.trials) == 48 + 8 * 10, "with more allowed it goes on"


def test_a_new_candidate_asks_again_and_keeps_nothing_of_the_old_choice() -> None:
    spec = run_world(world_spec(replicate=None), equal, 0)
    more = {"scheduler": {"value": "constant"}, "lr": {"values": [0.1, 0.05, 0.025, 0.2]}}
    wider = world_spec(replicate=None, variants=[more, {"scheduler": {"value": "polyak"}}])
    after = wider.with_decisions(spec.decisions)
    assert {t.values["scheduler"] for t in after.trials if t.is_added} == {"polyak"}, "whose candidates are the same"


def test_a_smaller_loss_is_better() -> None:
    spec = world_spec(metric={"name": "test/top1", "goal": "minimize"})
    assert {one.verdict for one in verdicts(run_world(spec, polyak_is_better, 0)).values()} == {"worse"}


@pytest.mark.parametrize("worlds", [40, pytest.param(400, marks=pytest.mark.long)])
@pytest.mark.parametrize("truth", [equal, polyak_is_better])
def test_worlds_keep_the_level(truth: Any, worlds: int) -> None:
    spec = world_spec()
    found = rates(spec, truth, worlds)
    if truth is equal:
        assert found.any_better_or_worse < most_by_chance(0.05, worlds)
    else:
        assert (found.better, found.worse) == (1.0, 0.0) and found.seeds < 12


def test_two_launches_with_other_plans_do_not_mix_their_looks() -> None:
    spec = run_world(world_spec(replicate={**REPLICATE, "max_trials": 100}), equal, 0)
    other = world_spec(replicate={**REPLICATE, "level": 0.4}).with_decisions(spec.decisions)
    world: Any = World(equal, 0, {trial.trial_id: trial for trial in other.trials})
    with pytest.raises(UserError, match="has looked at it by another plan than this one's"):
        decided(other, world, {i: TrialState(State.FINISHED) for i in world.trials}, keep=False)


def test_equal_cells_on_a_coarse_grid_are_not_told_apart_by_rounding() -> None:
    """Accuracies of 360 images, with a std of a fifth of one: most cells have no spread at all."""
    spec = world_spec()

    class Coarse(World):
        def value(self, trial_id: str) -> float:
            return round(360 * super().value(trial_id)) / 360

    for number in range(20):
        after = spec
        while True:
            trials = {trial.trial_id: trial for trial in after.trials}
            world: Any = Coarse(lambda _: (340.5 / 360, 0.2 / 360), number, trials)
            states = {i: TrialState(State.FINISHED) for i in trials}
            following = decided(after, world, states, keep=False)
            if following is after:
                break
            after = following
        assert not [one for one in after.decisions.looks[0].compared if one.verdict != OPEN]


def test_what_cannot_be_kept_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, spec = Store(str(tmp_path)), world_spec()
    store.write_sweep(spec)
    finish(store, spec)
    monkeypatch.setattr(store.search, "keep_decision", lambda *_: None)
    with pytest.raises(StoreError, match="cannot be kept"):
        settled(spec, store, keep=True)


def finish(store: Store, spec: Any, *, value: float = 0.9) -> None:
    """Results for all trials without any."""
    for at, trial in enumerate(spec.trials):
        if store.record(trial.trial_id) is None:
            row = {**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": 1, "step": 9, "partial": False}
            gain = 0.03 * (trial.values["scheduler"] == "polyak") + 0.001 * (at % 5)
            store.write_history(trial.trial_id, [{**row, "test/top1": value + gain}])
            record = {"outcome": "finished", "width": 1, "epoch": 1, "seconds": 1.0, "sessions": []}
            store.write_record(trial.trial_id, record)


def test_decisions_are_kept_before_they_are_acted_on_and_are_the_same_for_all(tmp_path: Path) -> None:
    store, spec = Store(str(tmp_path)), world_spec()
    store.write_sweep(spec)
    finish(store, spec)
    dry, _, _ = settled(spec, store, keep=False)
    assert store.search.decisions("world") == Decisions(), "a plan writes nothing"
    chosen, states, _ = settled(spec, store, keep=True)
    assert [t.trial_id for t in chosen.trials] == [t.trial_id for t in dry.trials]
    assert sum(state.state == State.NEW for state in states.values()) == 8 * 3
    again = store.search.as_decided(world_spec())
    assert again.decisions == chosen.decisions and again.trials == chosen.trials
    finish(store, chosen)
    looked, _, _ = settled(again, store, keep=True)
    other = Store(str(tmp_path)).search.as_decided(world_spec())
    assert other.decisions == looked.decisions and len(looked.decisions.looks) >= 1
    first = looked.decisions.looks[0]
    store.search.keep_decision("world", replace(first, seeds=99))
    assert store.search.decisions("world").looks[0] == first, "what another launch has kept holds"
