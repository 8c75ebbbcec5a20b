"""What a launch hands out next, and which points it ends early: the part of a search that needs to know results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Literal

from polysweep.sweeps.console import say, warn
from polysweep.sweeps.job import Calibration, CalibrationJob, Job, RowProgress
from polysweep.sweeps.planning.decide import decided
from polysweep.sweeps.planning.plan import Plan, plan
from polysweep.sweeps.planning.stacks import StackPlan
from polysweep.sweeps.planning.target import is_target_reached
from polysweep.sweeps.planning.widths import Widths
from polysweep.sweeps.scheduling.curves import Curves
from polysweep.sweeps.scheduling.observations import Observations
from polysweep.sweeps.spec.hyperband import survives
from polysweep.sweeps.spec.search import Suggestion, propose
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import SweepTrial, by_point
from polysweep.sweeps.store.states import FINAL, State, TrialState
from polysweep.sweeps.store.store import Store

ATTEMPTS: Final = 2
"""How often a measurement is tried, each time by another worker if one is free."""
WAIT: Final[Literal["wait"]] = "wait"
"""There is no job now, but there will be one when a measurement has come."""

StackJob = tuple[tuple[StackPlan, ...], Mapping[str, TrialState]]
"""The stacks of a job, and the states of their trials."""


class JobQueue:
    """The jobs of a sweep one after the other: what is left of known points, then, for bayes, new points.

    Everything it decides is in the Store before it is acted on.
    """

    def __init__(self, spec: SweepSpec, store: Store, data: str) -> None:
        self._store = store
        self.widths = Widths(spec, data)  # which launches of this machine's own fill with what is known of it
        self._jobs: Iterator[tuple[StackPlan, ...]] = iter(())
        self._to_measure: list[CalibrationJob] = []
        self._being_measured: dict[str, CalibrationJob] = {}
        self._attempts: Counter[str] = Counter()  # to measure, by name
        self._curves = Curves(store, spec.metric.name)
        self._observations = Observations(store, self._curves)
        self._handed_out: set[str] = set()  # trials
        self._states: Mapping[str, TrialState] = {}
        self._elsewhere: Mapping[str, TrialState] = {}  # trials that other launches were running when the round began
        self._ended: Mapping[str, TrialState] = {}  # trials that have ended well
        self.target_reached = False  # after that no trial is started
        self.exhausted = store.search.is_exhausted(spec.name) if spec.method == "bayes" else False
        self._adopt(store.search.as_decided(spec))

    def _adopt(self, spec: SweepSpec) -> None:
        """Replace the sweep, which may have new points."""
        self.spec = self.widths.spec = spec
        self._points = by_point(spec.tuning_trials) if spec.by_points else []  # each with all its seeds
        self._point_of = {trial.trial_id: members for members in self._points for trial in members}

    def states(self) -> dict[str, TrialState]:
        """The states of all trials, fresh from the Store, also of those that results have added by now."""
        is_new = self.spec.method == "bayes" and self._store.search.proposals(self.spec.name) != len(
            self.spec.suggestions
        )
        if is_new or self.spec.decides:
            self._adopt(self._store.search.as_decided(self.spec))
        while True:
            states = self._read_states()
            spec = decided(self.spec, self._store, states)
            if spec is self.spec:
                return states
            self._adopt(spec)
            listed = self._store.launched(spec.name)  # a later launch may have extended it, and decides by itself
            if {t.trial_id for t in listed.trials if not t.is_added} == {t.trial_id for t in spec.tuning_trials}:
                self._store.sweep_records.append(spec.name, spec.settings, spec.trials)

    def _read_states(self) -> dict[str, TrialState]:
        """One that has ended well stays so."""
        states = self._store.states(self.spec, ended=self._ended)
        self._ended = {i: state for i, state in states.items() if state.state in FINAL and state.state != State.FAILED}
        return states

    def begin(self, states: Mapping[str, TrialState]) -> Plan:
        """Start a round: hand out what these states leave to do.

        A measurement that has not come in the last round is made again.
        """
        self._being_measured.clear()
        round_plan = self._plan(states)
        self._states = states
        patience = self._store.files.patience
        asked = round_plan.to_measure
        self._to_measure = [self.widths.measurement(trial, self._store.root, patience) for trial in asked]
        waiting = {trial.signature for trial in asked}
        ready = [trial for trial in self.spec.trials if trial.signature not in waiting]
        self._jobs = iter(self._plan(states, ready).jobs if waiting else round_plan.jobs)
        self.target_reached = is_target_reached(self.spec.metric, self._store, states)
        if self.spec.by_points:
            self._curves.read(states)
            self._elsewhere = {i: state for i, state in states.items() if state.state == State.RUNNING}
        return round_plan

    def _plan(self, states: Mapping[str, TrialState], trials: Sequence[SweepTrial] | None = None) -> Plan:
        return plan(self.spec, states, trials=trials, widths=self.widths)

    def has_more(self, round_plan: Plan) -> bool:
        """Whether something is to be handed out."""
        return not self.target_reached and (bool(round_plan.jobs) or self._may_propose())

    def next(self) -> StackJob | CalibrationJob | Literal["wait"] | None:
        """The next job; None if there is nothing to start."""
        if self.target_reached:
            return None
        if self._to_measure:
            measurement = self._to_measure.pop(0)
            self._being_measured[measurement.name] = measurement
            self._attempts[measurement.name] += 1
            return measurement
        job = next(self._jobs, None)
        if job is None:
            return WAIT if self._being_measured else self._next_proposal()
        trial_ids = {trial.trial_id for stack in job for trial in stack.trials}
        self._handed_out |= trial_ids
        if self.spec.early_terminate:
            # If it was interrupted at a rung, the decision is made now, and its worker acts on it under the claim.
            self._judge(trial_ids)
        return job, self._states

    def job(self, stack: StackPlan, states: Mapping[str, TrialState], launch: str = "", stop_file: str = "") -> Job:
        """What a worker is told of a stack; `launch` is the id of the one that it works for."""
        spec = self.spec
        return Job(
            store=self._store.root,
            configs=tuple(trial.config.canonical() for trial in stack.trials),
            width=stack.width,
            epoch=stack.epoch,
            sweeps=(spec.name,),
            launch=launch,
            supersedes={trial.trial_id: states[trial.trial_id].generation for trial in stack.trials},
            device=spec.launch.device,
            data=self.widths.data,
            threads=spec.launch.cpus,
            checkpoint_seconds=spec.launch.checkpoint_seconds,
            keep=spec.launch.keep,
            metric=spec.metric.name,
            goal=spec.metric.goal,
            stop_file=stop_file,
            max_failures=spec.launch.max_failures,
            early=spec.early_terminate is not None,
            patience=self._store.files.patience,
        )

    def measured(self, name: str, calibration: Calibration | None, reason: str = "") -> None:
        """Take a measurement that a worker has made, or that there is none for some `reason`.

        Then another worker tries it once more, after that the trials start with K = 1, and a whole GPU.
        """
        job = self._being_measured.pop(name, None)
        if job is None:
            return
        if calibration is None and self._attempts[name] < ATTEMPTS:
            self._to_measure.append(job)
            return
        self.widths.measured[name] = calibration
        trials = [trial for trial in self.spec.trials if trial.signature == job.signature]
        for line in self.widths.lines(trials or self.spec.middles):
            text = f"{self.spec.name}: {line}"
            say(text) if calibration else warn(f"{text} ({reason})")
        self._jobs = chain(self._jobs, self._plan(self._states, trials).jobs)

    def update(self, rows: Iterable[RowProgress]) -> list[str]:
        """Add an epoch of a job. Returns the trials that are to stop now; none if it continues."""
        metric = self.spec.metric
        updated: set[str] = set()
        for row in rows:
            if metric.is_reached(row.history.get(metric.name)) and not row.history.get("partial"):
                self.target_reached = True
            if self.spec.by_points and row.history:
                self._curves.update(row)
                updated.add(row.trial_id)
        return self._judge(updated) if updated and self.spec.early_terminate else []

    def _judge(self, trial_ids: set[str]) -> list[str]:
        """If the point of these trials has reached a rung, decide whether it survives; returns its trials if not."""
        early = self.spec.early_terminate
        assert early is not None
        point = self._point_of.get(next(iter(trial_ids)))
        if point is None:  # no tuning trial
            return []
        curve = self._curves.mean(point)
        rung = len(curve)
        if rung not in early.rungs(point[0].epochs):
            return []
        own = [trial.trial_id for trial in point]
        self._curves.refresh(self._elsewhere, own)
        others = [self._curves.mean(members) for members in self._points if members is not point]
        strict = early.strict is not False
        decision = survives(curve, others, rung, early.eta, self.spec.metric.goal, strict=strict)
        compared = 1 + sum(len(other) >= rung for other in others)
        why = {"epoch": rung, "value": curve[-1], "points": compared, "eta": early.eta}
        return [] if self._store.search.decide(self.spec.name, own, rung, decision, why) else own

    # bayes

    def _may_propose(self) -> bool:
        return (
            self.spec.method == "bayes"
            and not self.exhausted
            and self.spec.points is not None
            and len(self.spec.suggestions) < self.spec.points
        )

    def _next_proposal(self) -> StackJob | None:
        """A new point of bayes as a job; None if there is none to start."""
        while self._may_propose():
            suggestion = self._new_point()
            if suggestion is None:
                self.exhausted = True
                self._store.search.mark_exhausted(self.spec.name)
                return None
            if self._keep(suggestion):
                job = self._job_of_last_point()
                if job is not None:
                    return job
        return None

    def _new_point(self) -> Suggestion | None:
        """What bayes proposes and no trial has tried; None if the space seems exhausted."""
        tried = {trial.trial_id for trial in self.spec.trials}
        observations = self._observations.of(self.spec, self._points)
        for suggestion in propose(self.spec.space, self.spec.search_seed, self.spec.metric.goal, observations):
            trials = self.spec.with_suggestions([suggestion]).trials
            if tried.isdisjoint(trial.trial_id for trial in trials):
                return suggestion
        return None

    def _keep(self, suggestion: Suggestion) -> bool:
        """Store a proposal before it is tried; False if another launch has stored one: that one is read."""
        before = self.spec.suggestions
        if not self._store.search.add_suggestion(self.spec.name, suggestion, len(before)):
            self._adopt(self._store.search.as_decided(self.spec))
            return False
        self._adopt(self.spec.with_suggestions([*before, suggestion]))
        self._store.sweep_records.append(self.spec.name, self.spec.settings, self._last_point())
        return True

    def _job_of_last_point(self) -> StackJob | None:
        """The job of the newest point; None if nothing of it is left to do, because another sweep contains it too."""
        trials = self._last_point()
        states = {trial.trial_id: self._store.state(trial.trial_id) for trial in trials}
        self._handed_out |= set(states)
        jobs = self._plan(states, trials).jobs
        return (jobs[0], states) if jobs else None

    def _last_point(self) -> list[SweepTrial]:
        return self.spec.tuning_trials[-len(self.spec.seeds) :]
