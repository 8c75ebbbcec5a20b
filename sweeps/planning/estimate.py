"""Wall time and cost of what a sweep has left, from finished trials of the same signature on the same device model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from polysweep.sweeps.planning.stacks import StackPlan
from polysweep.sweeps.spec.sweep import Resources
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.states import State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.trainer.cpus import usable_cpus
from polysweep.trainer.device import device_model

MOST_RECORDS: Final = 2000
"""Records that are looked at; of a larger Store the sweep's own come first."""
HOURS_A_YEAR: Final = 8766


@dataclass(frozen=True)
class Estimate:
    """What is left: `stacks`, `known` of which can be estimated, from so many finished `trials`.

    Those of proposals are among them if there is anything to judge them by.
    """

    device: str
    unit: str  # core or GPU
    stacks: int
    known: int
    trials: int
    slots: int  # stacks at once
    wall_hours: float | None
    device_hours: float | None
    spent_hours: float  # by the sweep's trials so far
    proposals: int = 0  # points that bayes has still to propose

    def as_json(self) -> dict[str, Any]:
        """As `plan --json` and `status --json` print it; null for what is not known."""
        return vars(self)

    def __str__(self) -> str:
        spent = f"{self.spent_hours:.2f} {self.unit}-hours spent"
        if not self.stacks:
            left = f"not known: {self.proposals} points are still to be proposed" if self.proposals else "nothing left"
            return f"{left}; {spent}"
        if self.wall_hours is None or self.device_hours is None:
            return f"no estimate: no finished trial of these stacks on {self.device}; {spent}"
        wall = _duration(self.wall_hours)
        spent += (
            f"; {self.proposals} points are still to be proposed and counted as average ones" if self.proposals else ""
        )
        part = "" if self.known == self.stacks else f" for {self.known} of {self.stacks} stacks, nothing on the others"
        return (
            f"about {wall} with {self.slots} stacks at once, {self.device_hours:.2f} {self.unit}-hours{part} "
            f"(from {self.trials} finished trials on {self.device}); {spent}"
        )


def _duration(hours: float) -> str:
    """`1:30:00`, or years if it is more than a calendar shows."""
    return (
        f"{hours / HOURS_A_YEAR:.3g} years"
        if hours > 100 * HOURS_A_YEAR
        else str(timedelta(seconds=round(hours * 3600)))
    )


def estimate(
    stacks: Sequence[StackPlan],
    states: Mapping[str, TrialState],
    launch: Resources,
    store: Store,
    *,
    records: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    proposals: int = 0,
    to_propose: Sequence[StackPlan] = (),
) -> Estimate:
    """How long stacks would take on this machine's device; `states` has all trials of the sweep.

    `records` are those that have been read already; `proposals` are points that bayes has still to propose, and
    `to_propose` what stands for their stacks.
    """
    device = device_model(launch.device, imports=False)
    per_stack = launch.gpus or launch.cpus
    spent, rates = _rates(states, store, device, records)
    seconds: list[float] = []
    for stack in (*stacks, *to_propose):
        rate = _rate(rates, stack.trials[0].signature, stack.width)
        if rate:
            seconds.append(rate.seconds * (stack.trials[0].epochs - stack.epoch))
    slots = launch.concurrency or _slots(launch.cpus, launch.gpus)
    total, covered = sum(seconds), len(seconds)
    return Estimate(
        device=device,
        unit="GPU" if launch.gpus else "core",
        stacks=len(stacks) + len(to_propose),
        known=covered,
        trials=sum(rate.trials for rate in rates.values()) if covered else 0,
        slots=slots,
        wall_hours=max(total / slots, *seconds) / 3600 if covered else None,
        device_hours=total * per_stack / 3600 if covered else None,
        spent_hours=spent * per_stack / 3600,
        proposals=proposals,
    )


class _Rate(NamedTuple):
    """How long an epoch of a stack takes."""

    seconds: float
    trials: int  # that it is measured on


_Rates = Mapping[tuple[str, int], _Rate]
"""By signature and K."""


def _rates(
    states: Mapping[str, TrialState], store: Store, device: str, records: Mapping[str, Mapping[str, Any]]
) -> tuple[float, _Rates]:
    """Seconds that the sweep's trials have taken, and the rates of finished trials on the same device model."""
    own = {trial_id for trial_id, state in states.items() if state.state != State.NEW}
    present = own if len(own) >= MOST_RECORDS else dict.fromkeys([*own, *store.files.names("trials")])
    spent = 0.0
    measured: dict[tuple[str, int], list[tuple[float, int]]] = {}  # seconds and epochs of each trial
    asked = list(islice(present, max(MOST_RECORDS, len(own))))
    read = ((trial_id, records[trial_id]) for trial_id in asked if trial_id in records)
    for trial_id, record in chain(read, store.records(trial_id for trial_id in asked if trial_id not in records)):
        if isinstance(record, StoreError):
            continue
        seconds = float(record.get("seconds") or 0.0)
        if trial_id in own:
            spent += seconds / record["width"]
        if _is_measured(record, device):
            measured.setdefault((str(record["signature"]), int(record["width"])), []).append((seconds, record["epoch"]))
    rates = {}
    for key, trials in measured.items():
        seconds, epochs = (sum(column) for column in zip(*trials, strict=True))
        rates[key] = _Rate(seconds / epochs, len(trials))
    return spent, rates


def _is_measured(record: Mapping[str, Any], device: str) -> bool:
    """Whether a record tells how long its kind of trial takes on a device model."""
    is_here = record.get("provenance", {}).get("device_model") == device
    return bool(record["outcome"] == State.FINISHED and is_here and record.get("signature") and record["epoch"])


def _rate(rates: _Rates, signature: str, width: int) -> _Rate | None:
    """The rate of a stack of this K, scaled from another K if this one has not been measured."""
    if (signature, width) in rates:
        return rates[signature, width]
    for (other_signature, other_width), rate in rates.items():
        if other_signature == signature:
            return _Rate(rate.seconds * width / other_width, rate.trials)
    return None


def _slots(cpus: int, gpus: float) -> int:
    """Stacks that this machine has room for."""
    slots = usable_cpus() // cpus
    if gpus:
        slots = min(slots, int(len(list(Path("/proc/driver/nvidia/gpus").glob("*"))) / gpus))
    return max(1, slots)
