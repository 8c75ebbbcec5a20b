"""What a Store holds, as tests compare it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def records(store: Path | str) -> dict[str, dict[str, Any]]:
    """Every trial's record by id."""
    from polysweep.sweeps.store.store import Store

    place = Store(str(store))
    return dict(place.records(place.files.names("trials")))


def histories(store: Path | str) -> dict[str, list[dict[str, Any]]]:
    """Every trial's history without its timings: what must not depend on how the sweep came to its end."""
    from polysweep.sweeps.store.store import Store
    from polysweep.trainer.history import TIMING_COLUMNS

    place = Store(str(store))
    return {
        trial_id: [{k: v for k, v in row.items() if k not in TIMING_COLUMNS} for row in place.history(trial_id)]
        for trial_id in records(store)
    }
