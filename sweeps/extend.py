"""How a spec differs from the one that its sweep was launched with: what is new, gone, unchanged, and changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sweeps.source import SpecError
from sweeps.spec import SweepSpec
from sweeps.store import Store


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


def compare(spec: SweepSpec, store: Store) -> Extension:
    """Compare with the sweep of the same name in the Store."""
    listed = store.listed(spec.name)
    before = {trial["trial_id"] for trial in listed}
    now = {trial.trial_id for trial in spec.trials}
    changed: tuple[str, ...] = ()
    if listed and (text := store.sweep_spec(spec.name)) != spec.text:
        try:
            old = store.known(SweepSpec.parse(text, f"sweep {spec.name}", spec.name, recorded=True))
        except SpecError as error:
            changed = (f"the spec as launched cannot be read any more ({error})",)
        else:
            changed = tuple(_changes(old, spec))
    return Extension(bool(listed), len(now - before), len(before - now), len(now & before), changed)


def _changes(old: SweepSpec, new: SweepSpec) -> list[str]:
    """Values that were the sweep's only ones and are not among the new ones, and what decides otherwise what is run."""
    found = [
        f"{name}: {was} -> {now}"
        for name, was, now in (
            ("method", old.method, new.method),
            ("metric.name", old.metric.name, new.metric.name),
            ("metric.goal", old.metric.goal, new.metric.goal),
            ("early_terminate", _words(old.early_terminate), _words(new.early_terminate)),
        )
        if was != now
    ]
    if old.method == new.method == "grid":
        before, after = _values(old), _values(new)
        for name, values in before.items():
            if len(values) == 1 and not values & after.get(name, set()):
                shown = ", ".join(map(str, sorted(after.get(name, {"nothing"}), key=repr)))
                found.append(f"{name}: {next(iter(values))} -> {shown}")
    elif old.method == new.method:
        for name in ("search_seed", "parameters", "variants"):
            if getattr(old, name) != getattr(new, name):
                found.append(f"{name} of a {new.method} search (other ranges are another search)")
    return found


def _words(model: Any) -> str:
    return "none" if model is None else " ".join(f"{k}={v}" for k, v in model.model_dump(exclude_none=True).items())


def _values(spec: SweepSpec) -> dict[str, set[Any]]:
    """By field, all its values in the sweep, the seeds not among them."""
    found: dict[str, set[Any]] = {}
    families = {id(trial.family): trial.family for trial in spec.trials}
    for family in families.values():
        for name, value in family.flat.items():
            if name not in family.names:
                found.setdefault(name, set()).add(value)
    for trial in spec.trials:
        for name, value in zip(trial.family.names, trial.choice, strict=True):
            found.setdefault(name, set()).add(value)
    found.pop("seed", None)
    return found
