"""What bayes learns from: for every point that it has proposed, how the trials of the point have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from polysweep.sweeps.scheduling.curves import Curves
from polysweep.sweeps.spec.search import Observation, Suggestion
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.states import FINAL, State
from polysweep.sweeps.store.store import Store

_BAD: Final = {State.DIVERGED, State.FAILED}


class Result(NamedTuple):
    """How one seed of a point stands."""

    outcome: str
    best: float | None  # of the metric over its epochs; None if it was never measured


def observation(suggestion: Suggestion, results: Sequence[Result], epoch: int) -> Observation:
    """One point from its seeds: running, bad, stopped at `epoch`, or complete, with the mean of their best values."""
    outcomes = {result.outcome for result in results}
    values = [result.best for result in results if result.best is not None]
    if not outcomes <= set(FINAL):
        return Observation(suggestion, "running")
    if outcomes & _BAD or len(values) < len(results):
        return Observation(suggestion, "bad")
    mean = sum(values) / len(values)
    if State.STOPPED in outcomes:
        return Observation(suggestion, "stopped", mean, epoch)
    return Observation(suggestion, "complete", mean)


class Observations:
    """The observations of a bayes sweep. A point that has ended is read once."""

    def __init__(self, store: Store, curves: Curves) -> None:
        self._store = store
        self._curves = curves
        self._ended: dict[int, Observation] = {}  # by index of the suggestion

    def of(self, spec: SweepSpec, points: Sequence[Sequence[SweepTrial]]) -> list[Observation]:
        """One for each suggestion, in their order; `points` are the trials of each."""
        stopped = self._store.search.all_ended_early(spec.name) if spec.early_terminate else set()
        observations = []
        for index, (suggestion, trials) in enumerate(zip(spec.suggestions, points, strict=True)):
            observed = self._ended.get(index) or self._observe(spec, suggestion, trials, stopped)
            if observed.state != "running":
                self._ended[index] = observed
            observations.append(observed)
        return observations

    def _observe(
        self, spec: SweepSpec, suggestion: Suggestion, trials: Sequence[SweepTrial], stopped: set[str]
    ) -> Observation:
        results = [self._result(spec, trial, is_stopped=trial.trial_id in stopped) for trial in trials]
        return observation(suggestion, results, len(self._curves.mean(trials)))

    def _result(self, spec: SweepSpec, trial: SweepTrial, *, is_stopped: bool) -> Result:
        try:
            record = self._store.record(trial.trial_id) or {"outcome": State.RUNNING}
        except StoreError:
            return Result(State.FAILED, None)
        outcome = State(record["outcome"])
        extremes = record.get("extremes", {}).get(spec.metric.name)
        best = extremes[spec.metric.goal == "maximize"] if extremes else None
        return Result(State.STOPPED if is_stopped and outcome == State.RUNNING else outcome, best)
