"""The metric of every trial epoch by epoch, as far as a launch knows it: what early termination goes by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from polysweep.sweeps.job import RowProgress
from polysweep.sweeps.spec.hyperband import mean_curve
from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.store.states import State, TrialState
from polysweep.sweeps.store.store import Store


class Curves:
    """By trial, the value of one metric after each epoch; None for an epoch in which it was not measured."""

    def __init__(self, store: Store, metric: str) -> None:
        self._store = store
        self._metric = metric
        self._curves: dict[str, list[float | None]] = {}

    def read(self, states: Mapping[str, TrialState]) -> None:
        """Read the curves of all trials that have epochs, and forget what was known."""
        self._curves = {trial_id: self._stored(trial_id) for trial_id, state in states.items() if state.epoch}

    def update(self, row: RowProgress) -> None:
        """Add an epoch of a trial; it can come twice, if it was trained again after a kill."""
        curve = self._curves.setdefault(row.trial_id, [])
        if len(curve) < row.epoch - 1:
            curve[:] = self._stored(row.trial_id)
        curve[row.epoch - 1 :] = [row.history.get(self._metric)]

    def refresh(self, states: Mapping[str, TrialState], own: Iterable[str]) -> None:
        """Read how far the trials have come that other launches run: all but `own`."""
        for trial_id in states.keys() - set(own):
            state = states[trial_id]
            if state.state == State.RUNNING or len(self._curves.get(trial_id, [])) < state.epoch:
                self._curves[trial_id] = self._stored(trial_id)

    def mean(self, trials: Sequence[SweepTrial]) -> list[float]:
        """The mean over the seeds of a point, as far as every seed has come."""
        return mean_curve([self._curves.get(trial.trial_id, []) for trial in trials])

    def _stored(self, trial_id: str) -> list[float | None]:
        return [row.get(self._metric) for row in self._store.history(trial_id)]
