"""Small sweeps in a Store, also as older versions wrote them."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from polysweep import cli as cli_module
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import Sweep
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import HISTORY_COLUMNS

TINY: dict[str, Any] = {
    "name": "tiny",
    "parameters": {
        "task": {"value": "digits"},
        "model": {"value": "mlp"},
        "optimizer": {"value": "usam"},
        "scheduler": {"value": "polyak"},
        "rho": {"values": [0.1, 0.2]},
        "epochs": {"value": 1},
    },
    "seeds": 1,
}


def spec_of(**changes: Any) -> SweepSpec:
    return SweepSpec.parse(json.dumps({**TINY, **changes}), "tiny.yaml")


def finish(store: Store, *trial_ids: str) -> None:
    """Results for trials of one epoch."""
    for trial_id in trial_ids:
        row = {**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": 1, "step": 9, "partial": False}
        store.write_history(trial_id, [row])
        store.write_record(trial_id, {"outcome": "finished", "width": 1, "epoch": 1, "seconds": 1.0, "sessions": []})


def ids(found: Sweep | SweepSpec) -> list[str]:
    return [trial.trial_id for trial in found.trials]


def as_older_version(store: Store, spec: SweepSpec, gone: list[str] | None = None) -> None:
    """The two files that a version before `sweep.json` left of a launched sweep, and the configs of its trials."""
    trials: list[dict[str, Any]] = [{"trial_id": t.trial_id, "cell": t.cell} for t in spec.trials]
    trials += [{"trial_id": trial_id, "cell": {}, "gone": True} for trial_id in gone or []]
    store.files.write(f"sweeps/{spec.name}/trials.json", json.dumps({"format": 1, "trials": trials}).encode())
    store.files.write(f"sweeps/{spec.name}/spec.yaml", spec.text.encode())
    for trial in spec.trials:
        store.write_config(trial.trial_id, trial.config.canonical())


def invoke(*arguments: str) -> tuple[int, str]:
    """A command, in this process: exit code and output."""
    try:
        result = CliRunner().invoke(cli_module.app, list(arguments), catch_exceptions=False)
    except StoreError as error:
        return 2, str(error)
    return result.exit_code, result.output
