"""Trials that were trained with another source of a user's own part than the one that there is now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.store.provenance import source_changes
from polysweep.trainer.components.plugins import component, own_sources


def changed_sources(trials: Iterable[SweepTrial], records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each part whose source has changed without a new version, with both hashes; `records` by trial id.

    Raises `ConfigError` if a part cannot be imported.
    """
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for trial in trials:
        recorded = records.get(trial.trial_id, {}).get("provenance", {})
        if recorded.get("sources"):
            for kind, before, now in source_changes(recorded, {"sources": own_sources(trial.values)}):
                counts[kind, trial.values[kind], before, now] += 1
    return [
        f"{kind} {name!r}, version {component(kind, name).version}: {count} trials were trained with another source of "
        f"it ({before}, now {now}); raise its version if its numbers have changed"
        for (kind, name, before, now), count in counts.items()
    ]
