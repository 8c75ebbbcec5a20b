"""The metric of every trial epoch by epoch: from the Store, and from what workers report."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.job import RowProgress
from polysweep.sweeps.scheduling.curves import Curves
from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.store.states import State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import HISTORY_COLUMNS

POINT = (SweepTrial("a", {"seed": 0}), SweepTrial("b", {"seed": 1}))


def put(store: Store, trial_id: str, *values: float) -> None:
    """A trial's history with these values of the metric."""
    rows = [{**dict.fromkeys(HISTORY_COLUMNS), "epoch": epoch, "test/top1": value, "partial": False}
            for epoch, value in enumerate(values, start=1)]  # fmt: skip
    store.write_history(trial_id, rows)


def test_a_reported_epoch_is_added_and_replaces_one_that_was_trained_before_a_kill(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, "a", 0.25, 0.5)
    put(store, "b", 0.75)
    curves = Curves(store, "test/top1")
    curves.read({"a": TrialState(State.INTERRUPTED, 1, 2), "b": TrialState(State.INTERRUPTED, 1, 1)})
    assert curves.mean(POINT) == [0.5], "as far as the slower seed has come"
    curves.update(RowProgress("b", 2, "running", {"test/top1": 1.0}))
    assert curves.mean(POINT) == [0.5, 0.75]
    curves.update(RowProgress("a", 1, "running", {"test/top1": 0.0}))
    assert curves.mean(POINT) == [0.375], "what came after the epoch that is trained again no longer counts"


def test_epochs_that_were_not_reported_are_read_from_the_store(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, "a", 0.25, 0.5)
    curves = Curves(store, "test/top1")
    curves.update(RowProgress("a", 3, "running", {"test/top1": 1.0}))
    assert curves.mean(POINT[:1]) == [0.25, 0.5, 1.0]


@pytest.mark.parametrize(("own", "mean"), [([], [0.25, 0.5]), (["a"], [0.25])])
def test_trials_of_other_launches_are_read_again_and_own_ones_are_not(
    tmp_path: Path, own: list[str], mean: list[float]
) -> None:
    store, states = Store(str(tmp_path)), {"a": TrialState(State.RUNNING, 1, 1)}
    put(store, "a", 0.25)
    curves = Curves(store, "test/top1")
    curves.read(states)
    put(store, "a", 0.25, 0.5)
    curves.refresh(states, own)
    assert curves.mean(POINT[:1]) == mean
