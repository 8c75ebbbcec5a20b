"""Records and histories of trials that nobody has trained."""

from __future__ import annotations

from typing import Any

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import HISTORY_COLUMNS


def fake(store: Store, spec: SweepSpec, outcome: str = "finished", epochs: int = 3, **more: Any) -> None:
    """Records and histories as of trials that have been trained."""
    for trial in spec.trials:
        rows = [{**dict.fromkeys(HISTORY_COLUMNS), "epoch": e + 1, "test/top1": 0.5, "seconds": 2.0, "partial": False}
                for e in range(epochs)]  # fmt: skip
        store.write_config(trial.trial_id, trial.config.canonical())
        store.write_history(trial.trial_id, rows)
        record = {"trial_id": trial.trial_id, "outcome": outcome, "width": 2, "epoch": epochs, "ended": 1.8e9,
                  "notes": [], "sessions": [], "seconds": 2.0 * epochs, "wandb": None, "error": None,
                  "extremes": {"test/top1": [0.5, 0.5]}}  # fmt: skip
        store.write_record(trial.trial_id, {**record, **more})
