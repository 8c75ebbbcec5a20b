"""What a launch hands out next, and which points it ends early: the part of a search that has to know results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from polysweep.sweeps.job import RowProgress
from polysweep.sweeps.planning.plan import Plan, plan
from polysweep.sweeps.planning.stacks import StackPlan
from polysweep.sweeps.spec.hyperband import goes_on, mean_curve
from polysweep.sweeps.spec.search import Observation, Suggestion, propose
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import SweepTrial, by_point
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.states import FINAL, TrialState
from polysweep.sweeps.store.store import Store, is_target_reached

Curve = list[float | None]


class JobQueue:
    """The jobs of a sweep one after the other: what is left of known points, then, for bayes, new points.

    Everything it decides is in the Store before it is acted on.
    """

    def __init__(self, spec: SweepSpec, store: Store, data: str) -> None:
        self._store = store
        self._data = data
        self.spec = store.search.with_proposals(spec)
        self._curves: dict[str, Curve] = {}
        self._observed: dict[int, Observation] = {}
        self._reached = False
        self._handed: set[str] = set()  # trials that this launch has handed out
        self._grouped_for: SweepSpec | None = None
        self._grouped: list[list[SweepTrial]] = []
        self._by_trial: dict[str, list[SweepTrial]] = {}
        self._jobs: Iterator[tuple[StackPlan, ...]] = iter(())
        self._states: Mapping[str, TrialState] = {}
        self._ended: Mapping[str, TrialState] = {}
        self.exhausted = store.search.is_exhausted(spec.name) if spec.method == "bayes" else False

    def states(self) -> dict[str, TrialState]:
        """The states of the trials that are known, fresh from the Store; one that has ended well stays so."""
        if self.spec.method == "bayes" and self._store.search.proposals(self.spec.name) != len(self.spec.suggestions):
            self.spec = self._store.search.with_proposals(self.spec)
        states = self._store.states(self.spec, known=self._ended)
        self._ended = {i: state for i, state in states.items() if state.state in FINAL and state.state != "failed"}
        return states

    def begin(self, states: Mapping[str, TrialState]) -> Plan:
        """Start a round: hand out what these states leave to do."""
        made = plan(self.spec, states, self._data)
        self._states = states
        self._jobs = iter(made.jobs)
        self._reached = is_target_reached(self.spec.metric, self._store, states)
        if self.spec.by_points:
            self._curves = {trial_id: self._curve(trial_id) for trial_id, state in states.items() if state.epoch}
        return made

    @property
    def target_reached(self) -> bool:
        """Whether a trial has reached the metric's target, after which none is started."""
        return self._reached

    def has_more(self, made: Plan) -> bool:
        """Whether something is to be handed out."""
        return not self._reached and (bool(made.jobs) or self._may_propose())

    def next(self) -> tuple[tuple[StackPlan, ...], Mapping[str, TrialState]] | None:
        """The stacks of the next job with the states of their trials; None where there is nothing to start."""
        if self._reached:
            return None
        job = next(self._jobs, None)
        if job is None:
            return self._proposal() if self._may_propose() else None
        self._handed |= {trial.trial_id for stack in job for trial in stack.trials}
        if self.spec.early_terminate:
            # Interrupted at a rung: the decision is made now, and its worker carries it out under the claim.
            self._judge({trial.trial_id for stack in job for trial in stack.trials})
        return job, self._states

    def update(self, rows: Iterable[RowProgress]) -> list[str]:
        """Take over an epoch of a job. Returns the trials that are to stop now; none where it goes on."""
        metric = self.spec.metric
        touched: set[str] = set()
        for row in rows:
            value = row.history.get(metric.name)
            self._reached = self._reached or (metric.is_reached(value) and not row.history.get("partial"))
            if self.spec.by_points and row.history:
                curve = self._curves.setdefault(row.trial_id, [])
                if len(curve) < row.epoch - 1:
                    curve[:] = self._curve(row.trial_id)
                curve[row.epoch - 1 :] = [value]  # an epoch can come twice: trained again after a kill
                touched.add(row.trial_id)
        return self._judge(touched) if touched and self.spec.early_terminate else []

    def _judge(self, touched: set[str]) -> list[str]:
        """Whether the point of these trials stops at the rung that it has just reached."""
        early = self.spec.early_terminate
        assert early is not None
        own = self._points[next(iter(touched))]
        curve = self._mean(own)
        rung = len(curve)
        if rung not in early.rungs(own[0].epochs):
            return []
        self._refresh_others(own)
        others = [self._mean(members) for members in self._point_list if members is not own]
        decided = goes_on(curve, others, rung, early.eta, self.spec.metric.goal)
        reached = 1 + sum(len(other) >= rung for other in others)
        why = {"epoch": rung, "value": curve[-1], "points": reached, "eta": early.eta}
        ids = [trial.trial_id for trial in own]
        return [] if self._store.search.decide(self.spec.name, ids, rung, decided, why) else ids

    def _refresh_others(self, own: Sequence[SweepTrial]) -> None:
        """Read how far the trials have come that another launch runs."""
        mine = {trial.trial_id for trial in own} | self._handed
        for trial_id, state in self._states.items():
            if trial_id not in mine and (state.state == "running" or len(self._curves.get(trial_id, [])) < state.epoch):
                self._curves[trial_id] = self._curve(trial_id)

    @property
    def _point_list(self) -> list[list[SweepTrial]]:
        """The points of the sweep as it is known."""
        if self._grouped_for is not self.spec:
            self._grouped_for, self._grouped = self.spec, by_point(self.spec.trials)
            self._by_trial = {trial.trial_id: members for members in self._grouped for trial in members}
        return self._grouped

    @property
    def _points(self) -> dict[str, list[SweepTrial]]:
        """By trial, its point."""
        _ = self._point_list
        return self._by_trial

    def _mean(self, members: Sequence[SweepTrial]) -> list[float]:
        return mean_curve([self._curves.get(trial.trial_id, []) for trial in members])

    def _curve(self, trial_id: str) -> Curve:
        return [row.get(self.spec.metric.name) for row in self._store.history(trial_id)]

    # bayes

    def _may_propose(self) -> bool:
        return (
            self.spec.method == "bayes"
            and not self.exhausted
            and self.spec.points is not None
            and len(self.spec.suggestions) < self.spec.points
        )

    def _proposal(self) -> tuple[tuple[StackPlan, ...], Mapping[str, TrialState]] | None:
        """A new point, kept in the Store before it is tried."""
        while self._may_propose():
            known = self.spec.suggestions
            made = self._new_point()
            if made is None:
                self.exhausted = True
                self._store.search.mark_exhausted(self.spec.name)
                return None
            if not self._store.search.add_suggestion(self.spec.name, made, len(known)):
                self.spec = self._store.search.with_proposals(self.spec)  # another launch has made this one
                continue
            self.spec = self.spec.with_suggestions([*known, made])
            members = self.spec.trials[-len(self.spec.seeds) :]
            self._store.sweep_records.append(self.spec.name, self.spec.settings, members)
            states = {trial.trial_id: self._store.state(trial.trial_id) for trial in members}
            self._handed |= set(states)
            job = plan(self.spec, states, self._data, members).jobs
            if job:
                return job[0], states
        return None

    def _new_point(self) -> Suggestion | None:
        """What bayes proposes, of which no trial is known; None where the space seems exhausted."""
        known = {trial.trial_id for trial in self.spec.trials}
        observations = self._observations()
        for suggestion in propose(self.spec.space, self.spec.search_seed, self.spec.metric.goal, observations):
            made = self.spec.with_suggestions([suggestion]).trials
            if known.isdisjoint(trial.trial_id for trial in made):
                return suggestion
        return None

    def _observations(self) -> list[Observation]:
        """What is known of every proposal, in their order."""
        members = self._point_list
        ended = self._store.search.all_ended_early(self.spec.name) if self.spec.early_terminate else set()
        found = []
        for index, (suggestion, trials) in enumerate(zip(self.spec.suggestions, members, strict=True)):
            if index not in self._observed:
                made = self._observe(suggestion, trials, ended)
                if made.state == "running":
                    found.append(made)
                    continue
                self._observed[index] = made
            found.append(self._observed[index])
        return found

    def _observe(self, suggestion: Suggestion, trials: Sequence[SweepTrial], ended: set[str]) -> Observation:
        """One point: complete with the mean over seeds of their best values, stopped, bad, or still running."""
        metric = self.spec.metric
        outcomes, values = [], []
        for trial in trials:
            try:
                record = self._store.record(trial.trial_id)
            except StoreError:
                record = {"outcome": "failed"}
            outcome = record["outcome"] if record else "running"
            outcomes.append("stopped" if outcome == "running" and trial.trial_id in ended else outcome)
            extremes = (record or {}).get("extremes", {}).get(metric.name)
            if extremes:
                values.append(extremes[metric.goal == "maximize"])
        running = Observation(suggestion, "running")
        if any(outcome not in FINAL for outcome in outcomes):
            return running
        if any(outcome in ("diverged", "failed") for outcome in outcomes) or len(values) < len(trials):
            return replace(running, state="bad")
        mean = sum(values) / len(values)
        if "stopped" in outcomes:
            return replace(running, state="stopped", value=mean, epoch=len(self._mean(trials)))
        return replace(running, state="complete", value=mean)
