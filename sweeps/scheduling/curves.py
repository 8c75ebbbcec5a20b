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
        self._means: dict[str, list[float]] = {}  # by a point's first trial, until one of its curves changes
        self._points: dict[str, str] = {}  # by trial, the first one of its point

    def read(self, states: Mapping[str, TrialState]) -> None:
        """Read the curves of all trials that have epochs, and forget what was known."""
        self._curves = {trial_id: self._stored(trial_id) for trial_id, state in states.items() if state.epoch}
        self._means.clear()

    def update(self, row: RowProgress) -> None:
        """Add an epoch of a trial; it can come twice, if it was trained again after a kill."""
        curve = self._curves.setdefault(row.trial_id, [])
        if len(curve) < row.epoch - 1:
            curve[:] = self._stored(row.trial_id)
        curve[row.epoch - 1 :] = [row.history.get(self._metric)]
        self._forget_mean(row.trial_id)

    def refresh(self, states: Mapping[str, TrialState], own: Iterable[str]) -> None:
        """Read how far the trials have come that other launches run: all but `own`."""
        for trial_id in states.keys() - set(own):
            state = states[trial_id]
            if state.state == State.RUNNING or len(self._curves.get(trial_id, [])) < state.epoch:
                self._curves[trial_id] = self._stored(trial_id)
                self._forget_mean(trial_id)

    def mean(self, trials: Sequence[SweepTrial]) -> list[float]:
        """The mean over the seeds of a point, as far as every seed has come."""
        point = trials[0].trial_id
        if point not in self._means:
            self._means[point] = mean_curve([self._curves.get(trial.trial_id, []) for trial in trials])
            self._points |= {trial.trial_id: point for trial in trials}
        return self._means[point]

    def _forget_mean(self, trial_id: str) -> None:
        self._means.pop(self._points.get(trial_id, ""), None)

    def _stored(self, trial_id: str) -> list[float | None]:
        return [row.get(self._metric) for row in self._store.history(trial_id)]
