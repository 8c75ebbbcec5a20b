"""Sweeps whose results are made up, in a Store; and the same runs as a W&B server has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import Selection
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.history import HISTORY_COLUMNS, SEVERITIES
from polysweep.trainer.wandb_runs import describe

Score = Callable[[TrialConfig], list[float] | str]
ONE_TABLE = {
    "task": {"value": "cifar10"},
    "model": {"value": "resnet20"},
    "optimizer": {"value": "usam"},
    "weight_decay": {"value": 5e-4},
    "rho": {"values": [0.1, 0.2, 0.3, 0.4]},
    "epochs": {"value": 3},
}
"""The parameters of one CIFAR-10 table, besides the scheduler: a row per radius."""
SPEC = {
    "name": "made",
    "metric": {"name": "test/top1", "goal": "maximize"},
    "parameters": {
        "task": {"value": "digits"},
        "model": {"value": "mlp"},
        "optimizer": {"value": "usam"},
        "rho": {"values": [0.1, 0.4]},
        "epochs": {"value": 3},
    },
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"values": [0.01, 0.1, 1.0]}},
        {"scheduler": {"value": "polyak"}},
    ],
    "tuned": ["lr"],
    "seeds": 3,
}


def sweep(folder: Path, score: Score, **changes: object) -> RunSet:
    """A sweep in a Store whose trials have the test accuracies, per epoch, or the outcome, that `score` says."""
    text = json.dumps({**SPEC, **changes})
    spec, store = SweepSpec.parse(text, "made.yaml"), Store(str(folder))
    store.write_sweep(spec)
    for trial in spec.trials:
        made = score(trial.config)
        if made == "new":
            continue
        values = made if isinstance(made, list) else [0.1]
        if isinstance(made, list):
            values = [*values, *[min(values)] * (3 - len(values))]  # a finished trial has all its epochs
        rows = [
            {**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": e, "step": 9 * e, "test/top1": v, "test/loss": 1 - v,
             "seconds": 3.0 / len(values), "partial": made == "diverged"}
            for e, v in enumerate(values, start=1)
        ]  # fmt: skip
        outcome = made if isinstance(made, str) else "finished"
        store.write_config(trial.trial_id, trial.config.canonical())
        store.write_history(trial.trial_id, rows)
        store.write_record(
            trial.trial_id,
            {"outcome": outcome, "width": 1, "epoch": len(rows), "seconds": 3.0, "sessions": [{}],
             "error": "Traceback\nValueError: oh" if outcome == "failed" else None,
             "diverged": {"epoch": 1, "step": 4} if outcome == "diverged" else None,
             "provenance": {"commit": "c0ffee", "versions": {"torch": "2"}, "device": "cpu", "threads": 1}},
        )  # fmt: skip
    return pull(spec.name, store=store, cache=folder / "cache")


def corrupted(pulled: RunSet) -> RunSet:
    """The same runs with accuracies on noisy images, 1 % less for each severity, and 2 % on those of less contrast."""
    clean = pulled.runs["last/test/top1"]
    drops = {
        f"last/test/{name}-{n}": clean - drop * n
        for name, drop in (("noise", 0.01), ("contrast", 0.02))
        for n in SEVERITIES
    }
    probed = {name.removeprefix("last/"): "last" for name in drops}
    return replace(pulled, runs=pulled.runs.assign(**drops), protocol=replace(pulled.protocol, probed=probed))


def by_lr(config: TrialConfig) -> list[float]:
    """lr = 0.1 is best; seeds differ by 0.01; the second epoch is the best."""
    base = {0.01: 0.70, 0.1: 0.90, 1.0: 0.80, None: 0.95}[config.lr] - (config.rho or 0) / 10
    value = base + 0.01 * config.seed
    return [value - 0.1, value, value - 0.05]


def cell(selection: Selection, rho: float, scheduler: str) -> pd.Series:
    found = selection.cells[(selection.cells["rho"] == rho) & (selection.cells["scheduler"] == scheduler)]
    assert len(found) == 1
    return found.iloc[0]


def as_runs(store: Store, name: str) -> list[dict[str, Any]]:
    """The trials of a sweep that have started, as `Wandb.load` takes them."""
    spec = store.launched(name)
    states = store.states(spec)
    runs = []
    for trial in spec.trials:
        state = states[trial.trial_id].state
        if state == "new":
            continue
        config, record = trial.config, store.record(trial.trial_id) or {}
        run = describe(trial.trial_id, config.canonical(), config.flat(), [name], record)
        rows = [
            {**{key: value for key, value in row.items() if value is not None}, "_step": row["epoch"]}
            for row in store.history(trial.trial_id)
        ]
        runs.append(
            {
                "name": trial.trial_id,
                "config": {key: {"value": value} for key, value in run.config.items()},
                "attributes": {"displayName": run.name, "groupName": run.group, "tags": list(run.tags)},
                "history": [json.dumps(row) for row in rows],
                "summary": json.dumps({**(rows[-1] if rows else {}), "outcome": record["outcome"]}),
                "complete": True,
                "exit_code": int(record["outcome"] in ("failed", "running")),
                "preempting": record["outcome"] == "running",
            }
        )
    return runs


ADDRESS = "wandb://lab/p"


def a_run(name: str, rows: list[dict[str, Any]], config: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A run of a project that is not ours."""
    numbered = [{"_step": step, **row} for step, row in enumerate(rows)]
    return {
        "name": name,
        "config": {key: {"value": value} for key, value in (config or {}).items()},
        "history": [json.dumps(row) for row in numbered],
        "summary": json.dumps(numbered[-1] if numbered else {}),
        "complete": True,
        "exit_code": 0,
        **fields,
    }


def foreign(seeds: int = 2, epochs: int = 3) -> list[dict[str, Any]]:
    """Runs as somebody else logs them: other names, nested config, a loss to minimise."""
    return [
        a_run(
            f"{opt}-{radius}-{lr}-{seed}",
            [{"val_loss": 1.0 + radius + (lr - 0.1) ** 2 + 0.01 * seed - 0.1 * e, "acc": 0.5} for e in range(epochs)],
            {"optimizer": {"name": opt, "radius": radius}, "lr": lr, "random_seed": seed, "host": f"node{seed}"},
        )
        for opt in ("sam", "sgd")
        for radius in (0.1, 0.2)
        for lr in (0.1, 0.5)
        for seed in range(seeds)
    ]


def with_field(name: str, *values: Any) -> list[dict[str, Any]]:
    """Two seeds of each value of a field."""
    return [
        a_run(f"r{at}-{seed}", [{"acc": 0.5 + 0.1 * at + 0.01 * seed}], {name: value, "seed": seed})
        for at, value in enumerate(values)
        for seed in (0, 1)
    ]


MAPPED = {
    "mapping": {"rho": "optimizer.radius", "scheduler": "optimizer.name", "seed": "random_seed"},
    "metric": "val_loss",
    "tuned": ["lr"],
    "ignore": ["host"],
}
CAPS = {
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"values": [0.01, 0.1]}},
        {"scheduler": {"value": "polyak"}, "gamma_b": {"values": [0.5, 1.0, 10.0]}},
    ],
    "parameters": {**SPEC["parameters"], "optimizer": {"values": ["usam", "sam"]}},
}


def capped(config: TrialConfig) -> list[float] | str:
    """Polyak with the largest cap diverges at the larger radius, with one seed of three at the smaller one."""
    if config.gamma_b == 10.0 and (config.rho == 0.4 or config.seed == 1):
        return "diverged"
    return by_lr(config)


def ids(pulled: Any) -> list[str]:
    found: list[str] = pulled.runs["trial_id"].tolist()
    return found
