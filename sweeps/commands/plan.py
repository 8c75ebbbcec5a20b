"""`polysweep plan`: what a launch would start, and what it would take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polysweep.sweeps.commands.launch import warnings
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


def plan_launch(spec: SweepSpec, store: Store, data_dir: str | None = None) -> PlannedLaunch:
    """Plan a launch of `spec`; nothing is started or written."""
    spec = as_launched(spec, store)
    records: dict[str, Mapping[str, Any]] = {}
    data = data_folder(data_dir, spec.launch.data_dir)
    widths = Widths(spec, data, store=store)
    planned = plan(spec, store.states(spec, records=records), widths=widths)
    extension = compare(spec, store)
    cost = estimate(
        planned.stacks,
        planned.states,
        spec.settings.launch,
        store,
        records=records,
        proposals=planned.proposals_left,
        to_propose=planned.to_propose,
    )
    return PlannedLaunch(
        planned, extension, cost, (*warnings(spec), *planned.notes, *changed_sources(planned.trials, records))
    )
