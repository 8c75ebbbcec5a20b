"""A sweep has reached its target once some trial's best value has."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.planning.target import is_target_reached
from polysweep.sweeps.spec.sweep import RecordedMetric
from polysweep.sweeps.store.states import State, TrialState
from polysweep.sweeps.store.store import Store

STATES = {"a": TrialState(State.RUNNING, 1, 2), "b": TrialState(State.FAILED, 1, 2), "new": TrialState()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A trial between 0.25 and 0.75, one without the metric, and one whose record is damaged."""
    store = Store(str(tmp_path))
    record = {"outcome": "running", "width": 1, "epoch": 2}
    store.write_record("a", {**record, "extremes": {"test/top1": [0.25, 0.75]}})
    store.write_record("new", {**record, "extremes": {"test/top1": [0.0, 1.0]}})
    store.files.write("trials/b/record.json", b"{")
    return store


@pytest.mark.parametrize(
    ("goal", "target", "is_reached"),
    [
        ("maximize", 0.75, True), ("maximize", 0.76, False), ("minimize", 0.25, True), ("minimize", 0.24, False),
        ("maximize", None, False),
    ],
)  # fmt: skip
def test_the_best_epoch_of_a_trial_reaches_the_target(
    store: Store, goal: str, target: float | None, is_reached: bool
) -> None:
    assert is_target_reached(RecordedMetric("test/top1", goal, target), store, STATES) is is_reached


def test_a_metric_that_no_trial_has_measured_is_not_reached(store: Store) -> None:
    assert not is_target_reached(RecordedMetric("test/loss", "minimize", 1.0), store, STATES)
