"""`polysweep plan`: what a launch would start, and what it would take."""

from __future__ import annotations

from dataclasses import dataclass

from polysweep.sweeps.commands.launch import warnings
from polysweep.sweeps.planning.decide import settled
from polysweep.sweeps.planning.decision_lines import decision_lines
from polysweep.sweeps.planning.estimate import Estimate, estimate
from polysweep.sweeps.planning.plan import Plan, plan
from polysweep.sweeps.planning.preflight import data_folder
from polysweep.sweeps.planning.sources import changed_sources
from polysweep.sweeps.planning.spec_changes import Extension, as_launched, compare
from polysweep.sweeps.planning.widths import Widths
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store


@dataclass(frozen=True)
class PlannedLaunch:
    """A sweep's plan, its spec's changes since the launch, the time it takes, and what is probably not intended."""

    plan: Plan
    extension: Extension
    estimate: Estimate
    warnings: tuple[str, ...]
    decisions: tuple[str, ...]  # what has been decided, and what comes after the trials that would start


def plan_launch(spec: SweepSpec, store: Store, data_dir: str | None = None) -> PlannedLaunch:
    """Plan a launch of `spec`; nothing is started or written."""
    spec = as_launched(spec, store)
    compare(spec, store)  # which refuses what must not be decided
    spec, states, records = settled(spec, store, keep=False)
    extension = compare(spec, store)
    data = data_folder(data_dir, spec.launch.data_dir)
    widths = Widths(spec, data, store=store)
    planned = plan(spec, states, widths=widths)
    cost = estimate(
        planned.stacks,
        planned.states,
        spec.settings.launch,
        store,
        records=records,
        proposals=planned.proposals_left,
        to_propose=[*planned.to_propose, *planned.to_report],
    )
    remarks = (*warnings(spec), *planned.notes, *changed_sources(planned.trials, records))
    return PlannedLaunch(planned, extension, cost, remarks, _decisions(planned, store) if spec.decides else ())


def _decisions(planned: Plan, store: Store) -> tuple[str, ...]:
    from polysweep.sweeps.planning.ahead import lines_ahead  # scipy takes its time

    spec = planned.spec
    lines = decision_lines(spec.settings, spec.decisions, spec.trials)
    return (*lines, *lines_ahead(spec, store, planned.states))
