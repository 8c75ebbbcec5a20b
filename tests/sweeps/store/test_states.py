"""Where a trial stands: the words for it, and how many trials there are of each."""

from __future__ import annotations

import json
from typing import get_args, get_type_hints

from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.store.schemas import Record
from polysweep.sweeps.store.states import FINAL, State, TrialState, counts_of


def test_a_state_is_its_word_in_a_record() -> None:
    outcomes = get_args(get_type_hints(Record)["outcome"])
    assert set(outcomes) == {State.RUNNING, *FINAL}, "what a record may have as its outcome"
    assert json.loads(json.dumps({"outcome": State.STOPPED})) == {"outcome": "stopped"}
    assert State("failed") is State.FAILED and TrialState() == TrialState("new", None, 0)


def test_every_state_is_counted_also_those_that_no_trial_has() -> None:
    trials = [SweepTrial(trial_id, {}) for trial_id in "abc"]
    states = {"a": TrialState(State.DIVERGED), "b": TrialState(State.DIVERGED), "c": TrialState(), "d": TrialState()}
    assert counts_of(trials, states) == {
        "trials": 3, "new": 1, "interrupted": 0, "running": 0, "finished": 0, "diverged": 2, "failed": 0, "stopped": 0,
    }  # fmt: skip
