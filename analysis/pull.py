"""From the Store to two tidy frames: `runs`, one row per trial, and `history`, one row per trial and epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from sweeps.files import StoreError
from sweeps.spec import SweepSpec
from sweeps.store import Store
from trainer.history import HISTORY_COLUMNS, METRICS

LOGGED: Final = tuple(name for name in HISTORY_COLUMNS if name not in ("epoch", "partial"))


@dataclass(frozen=True)
class Pulled:
    """A sweep's trials.

    `runs`: trial_id, sweep, outcome (`new` and `interrupted` included), every config field, `best_epoch`,
    `best/<column>` (at the best epoch of the sweep's metric), `last/<column>`, provenance. A diverged or failed trial
    has no best and no last values. `history`: trial_id and the history columns.
    """

    spec: SweepSpec
    runs: pd.DataFrame
    history: pd.DataFrame


def pull(name: str, store: Store) -> Pulled:
    """Read the sweep `name`.

    Raises `UserError` with the sweeps that there are where it is unknown.
    """
    spec = store.launched(name)
    runs, histories = [], []
    states = store.states(spec)
    for trial in spec.trials:
        state = states[trial.trial_id]
        record = {"error": state.damage} if state.damage else store.record(trial.trial_id) or {}
        rows = store.history(trial.trial_id)
        if state.state == "finished" and len(rows) != trial.config.epochs:
            raise StoreError(
                f"{store.root}/trials/{trial.trial_id}/history.parquet: damaged: "
                f"{len(rows)} epochs of {trial.config.epochs} of a finished trial"
            )
        histories += [{"trial_id": trial.trial_id, **row} for row in rows]
        runs.append(
            {
                "trial_id": trial.trial_id,
                "sweep": spec.name,
                "outcome": state.state,
                **trial.config.flat(),
                **_values(spec, state.state, rows),
                **_provenance(record),
            }
        )
    history = pd.DataFrame(histories, columns=["trial_id", *HISTORY_COLUMNS])
    return Pulled(spec, pd.DataFrame(runs), history)


def _values(spec: SweepSpec, state: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`best_epoch`, `best/*` and `last/*`; of several best epochs the first."""
    measured = [row for row in rows if row.get(spec.metric.name) is not None]
    names = [*METRICS, *(name for name in LOGGED if name not in METRICS)]
    if state in ("new", "diverged", "failed") or not measured:
        return {
            "best_epoch": None,
            **{f"{which}/{name}": None for which in ("best", "last") for name in names},
        }
    pick = max if spec.metric.goal == "maximize" else min
    best = pick(measured, key=lambda row: float(row[spec.metric.name]))
    return {
        "best_epoch": best["epoch"],
        **{f"best/{name}": best[name] for name in names},
        **{f"last/{name}": rows[-1][name] for name in names},
    }


def _provenance(record: Mapping[str, Any]) -> dict[str, Any]:
    found = record.get("provenance", {})
    versions = {f"version.{name}": version for name, version in found.get("versions", {}).items()}
    return {
        **{key: record.get(key) for key in ("width", "epoch", "started", "ended", "seconds", "error")},
        "diverged_step": (record.get("diverged") or {}).get("step"),
        "sessions": len(record.get("sessions", [])),
        **{key: found.get(key) for key in ("numerics", "commit", "device", "device_model", "threads", "image")},
        **versions,
    }
