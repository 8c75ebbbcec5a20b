"""How a spec differs from the one that its sweep was launched with: what is new, gone, unchanged, and changed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from polysweep.sweeps.spec.added_trials import rounds
from polysweep.sweeps.spec.comparisons import pairs_of
from polysweep.sweeps.spec.decisions import by_key
from polysweep.sweeps.spec.protocol import seeds_text
from polysweep.sweeps.spec.replication_checks import fixed_plan
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import Settings, Sweep, SweepTrial
from polysweep.sweeps.store.preregistered import FILE, frozen_claims
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError


@dataclass(frozen=True)
class Extension:
    """`new`, `gone` and `unchanged` count trials; `changed` are values that are not what they were."""

    known: bool  # whether the sweep has been launched before
    new: int
    gone: int
    unchanged: int
    changed: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As `plan --json` prints it."""
        return {"new": self.new, "gone": self.gone, "unchanged": self.unchanged, "changed": list(self.changed)}


def as_launched(spec: SweepSpec, store: Store) -> SweepSpec:
    """The spec with what its sweep has decided in the Store: the points of bayes; how points are drawn at random.

    Earlier versions drew no point twice, and a sweep that one of them has launched continues so.
    """
    if spec.method == "random" and spec.name in store.sweeps():
        before = store.launched(spec.name).settings
        if before.method == "random" and not json.loads(before.space or "{}").get("replacement"):
            spec = spec.with_distinct_draws()
    return store.search.as_decided(spec)


def compare(spec: SweepSpec, store: Store) -> Extension:
    """Compare with the sweep of the same name in the Store.

    Raises `UserError` if the claims are not those that it has frozen, or the looks not those that it has begun.
    """
    is_launched = spec.name in store.sweeps()
    check_claims(spec, store, is_launched=is_launched)
    check_looks(spec, store)
    if not is_launched:
        return Extension(False, len(spec.trials), 0, 0)
    old = store.launched(spec.name)
    before = {trial.trial_id for trial in (*old.trials, *old.gone)}
    now = {trial.trial_id for trial in spec.trials}
    return Extension(True, len(now - before), len(before - now), len(now & before), tuple(_changes(old, spec)))


def check_claims(spec: SweepSpec, store: Store, *, is_launched: bool) -> None:
    """Raise `UserError` if the claims of a launched sweep are not those that its first launch has frozen.

    What their answers depend on is frozen with them: trials, seeds, tuned parameters and metric.
    """
    frozen, now = frozen_claims(store.files, spec.name), spec.preregistration
    if frozen is None and now.claims and is_launched:
        raise UserError(
            f"claims: the sweep {spec.name!r} was launched without these, and what is claimed afterwards is "
            "exploratory; remove them, or give this spec another name"
        )
    if frozen is not None and (changes := frozen.changes_to(now)):
        path = store.files.path(f"sweeps/{spec.name}/{FILE}")
        raise UserError(
            f"claims: the sweep {spec.name!r} is frozen with its claims since {frozen.at} ({path}), and this spec "
            f"differs in {'; '.join(changes)}; restore that, or give this spec another name: trials that both have are "
            "not run again"
        )


def check_looks(spec: SweepSpec, store: Store) -> None:
    """Raise `UserError` if a launched sweep has been looked at by another plan than that of the spec.

    The level holds over looks that were fixed before the first one, with as many comparisons as there were.
    """
    looks = store.search.decisions(spec.name).looks
    if not looks:
        return
    first, path = looks[0], store.files.path(f"sweeps/{spec.name}/looks")
    now = fixed_plan(spec)
    count = 0 if spec.replicate is None else len(pairs_of(spec.replicate, spec.tuning_trials))
    changes = [
        f"{key}: {value} -> {now.get(key, 'nothing')}" for key, value in first.plan.items() if value != now.get(key)
    ]
    if first.comparisons != count:
        changes.append(f"comparisons: {first.comparisons} -> {count}")
    cells = {cell for one in first.compared for cell in one.cells}
    if not changes and not cells <= by_key(spec.tuning_trials).keys():
        changes.append("cells that are compared, their candidates, or the seeds that tune")
    if changes:
        raise UserError(
            f"replicate: the sweep {spec.name!r} has been looked at {len(looks)} times since {first.at} ({path}), and "
            f"its level holds for the looks and comparisons as they were; this spec differs in {'; '.join(changes)}; "
            "restore that, or give this spec another name: trials that both have are not run again"
        )
    if len(rounds(spec, spec.tuning_trials, spec.decisions)) < len(looks) + bool(spec.protocol):
        assert spec.replicate is not None
        listed = store.launched(spec.name).trials
        raise UserError(
            f"replicate.max_trials: {spec.replicate.max_trials}, but the {len(looks)} looks that have been made took "
            f"more; the sweep has {len(listed)} trials"
        )


def _changes(old: Sweep, new: SweepSpec) -> list[str]:
    """Values that were the sweep's only ones and are not among the new ones, and what decides otherwise what is run."""
    was, now = old.settings, new.settings
    changes = [
        f"{name}: {before} -> {after}"
        for name, before, after in (
            ("name as written", was.title or old.name, now.title or new.name),
            ("method", was.method, now.method),
            ("metric.name", was.metric.name, now.metric.name),
            ("metric.goal", was.metric.goal, now.metric.goal),
            ("early_terminate", was.early_terminate, now.early_terminate),
            ("protocol.retrain", _retrains(was), _retrains(now)),
            ("protocol", was.protocol is not None, now.protocol is not None),
        )
        if before != after
    ]
    if was.protocol and now.protocol and (dropped := set(was.protocol["report_on"]) - set(now.protocol["report_on"])):
        changes.append(f"protocol.report_on: without {seeds_text(sorted(dropped))}")
    if was.method == now.method == "grid":
        values, left = _values(old.trials), _values(new.trials)
        for name, only in values.items():
            if len(only) == 1 and not only & left.get(name, set()):
                shown = ", ".join(map(str, sorted(left.get(name, {"nothing"}), key=repr)))
                changes.append(f"{name}: {next(iter(only))} -> {shown}")
    elif was.method == now.method and was.space and was.space != now.space:
        before, after = json.loads(was.space), json.loads(now.space)
        for name, what in (("search_seed", "search_seed"), ("space", "parameters")):
            if before.get(name) != after.get(name):
                changes.append(f"{what} of a {now.method} search (other ranges are another search)")
    return changes


def _retrains(settings: Settings) -> bool:
    return bool((settings.protocol or {}).get("retrain"))


def _values(trials: Iterable[SweepTrial]) -> dict[str, set[Any]]:
    """By field, all its values in the sweep, the seeds not among them."""
    values: dict[str, set[Any]] = {}
    for trial in trials:
        for name, value in trial.values.items():
            values.setdefault(name, set()).add(value)
    values.pop("seed", None)
    return values
