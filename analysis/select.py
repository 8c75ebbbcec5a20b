"""The tuning protocol: one choice of the tuned parameters per cell, by the mean over seeds. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from analysis.pull import Pulled
from sweeps.expand import SweepTrial
from trainer.history import METRICS, SPLITS
from trainer.registry import UserError, expected

EPOCHS: Final = ("best", "last")
TABLE_KEYS: Final = ("rho", "scheduler")


@dataclass(frozen=True)
class Selection:
    """What was chosen, and what it scored.

    `cells`: one row per cell: rho, scheduler, the other varying fields, the tuned fields as chosen, `selected`,
    `candidates`, `seeds`, `n`, `mean`, `std` (sample, ddof = 1; NaN for n = 1), and how many seeds are `diverged`,
    `failed`, `stopped`, `missing`. `values`: one row per trial of the chosen candidates, with its `value`.
    `candidates`: one row per candidate with its rank in the cell, 1 the chosen one.
    """

    pulled: Pulled
    metric: str
    epoch: str
    cells: pd.DataFrame
    values: pd.DataFrame
    candidates: pd.DataFrame

    @property
    def varying(self) -> list[str]:
        """The fields besides rho and scheduler that tell cells apart: one table per choice of them."""
        first = self.pulled.spec.trials[0].cell
        names = dict.fromkeys([*first, *(k for trial in self.pulled.spec.trials for k in trial.cell)])
        return [name for name in names if name not in TABLE_KEYS]

    @property
    def on_test(self) -> bool:
        """Whether the test set chose the epoch or a tuned parameter."""
        return self.selected_on == "test"

    @property
    def selected_on(self) -> str:
        """The set that chose the epoch or a tuned parameter: train, val or test; `nothing` where neither was chosen."""
        chosen = self.epoch == "best" or bool(self.pulled.spec.tuned)
        return self.pulled.spec.metric.name.partition("/")[0] if chosen else "nothing"


def select(pulled: Pulled, *, metric: str | None = None, epoch: str = "best") -> Selection:
    """Choose one candidate per cell.

    Candidates of a cell are its choices of the tuned parameters. They are ranked by the number of finished seeds, then
    by the mean over those seeds of the sweep's metric (at its best epoch, or the last), then by the order in the spec.
    `metric` is what is reported, the sweep's own by default.

    Raises `UserError` for an unknown metric or epoch.
    """
    spec = pulled.spec
    metric = spec.metric.name if metric is None else metric
    if metric not in METRICS:
        raise UserError(f"--metric: unknown metric {metric!r}; {expected(metric, METRICS)}")
    if epoch not in EPOCHS:
        raise UserError(f"--epoch: {epoch!r}; expected best or last")
    if metric.startswith(f"{SPLITS[1]}/") and not any(t.config.val_fraction for t in spec.trials):
        raise UserError(f"--metric: {metric} was not measured: the sweep holds nothing out (val_fraction = 0)")
    runs = {str(run["trial_id"]): run for run in pulled.runs.to_dict("records")}
    cells: dict[str, dict[str, list[SweepTrial]]] = {}
    for trial in spec.trials:
        cells.setdefault(repr(trial.cell), {}).setdefault(repr(_tuned(trial, spec.tuned)), []).append(trial)
    chosen_rows, value_rows, candidate_rows = [], [], []
    for members in cells.values():
        scored = [_score(trials, runs, f"{epoch}/{spec.metric.name}", spec.metric.goal) for trials in members.values()]
        ranked = sorted(zip(scored, members.values(), strict=True), key=lambda pair: pair[0])  # stable
        for rank, (_, trials) in enumerate(ranked, start=1):
            row = _describe(trials, runs, f"{epoch}/{metric}", spec.tuned)
            candidate_rows.append({**row, "rank": rank})
            if rank == 1:
                chosen_rows.append({**row, "candidates": len(ranked)})
                value_rows += [_value(trial, runs[trial.trial_id], f"{epoch}/{metric}") for trial in trials]
    return Selection(
        pulled,
        metric,
        epoch,
        pd.DataFrame(chosen_rows),
        pd.DataFrame(value_rows),
        pd.DataFrame(candidate_rows),
    )


def _tuned(trial: SweepTrial, names: list[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(trial.config, name)) is not None}


def _finished(trials: list[SweepTrial], runs: Mapping[str, Mapping[Any, Any]], column: str) -> list[float]:
    found = (runs[trial.trial_id] for trial in trials)
    return [float(run[column]) for run in found if run["outcome"] == "finished" and not pd.isna(run[column])]


def _score(
    trials: list[SweepTrial], runs: Mapping[str, Mapping[Any, Any]], column: str, goal: str
) -> tuple[int, float]:
    """Smaller is better: fewer seeds missing, then the mean in the direction of the goal."""
    values = _finished(trials, runs, column)
    if not values:
        return 0, math.inf
    mean = statistics.fmean(values)
    return -len(values), -mean if goal == "maximize" else mean


def _describe(
    trials: list[SweepTrial], runs: Mapping[str, Mapping[Any, Any]], column: str, tuned: list[str]
) -> dict[str, Any]:
    values = _finished(trials, runs, column)
    outcomes = Counter(str(runs[trial.trial_id]["outcome"]) for trial in trials)
    choice = _tuned(trials[0], tuned)
    return {
        **_key(trials[0]),
        **choice,
        "selected": " ".join(f"{name}={value}" for name, value in choice.items()),
        "seeds": len(trials),
        "n": len(values),
        "mean": statistics.fmean(values) if values else math.nan,
        "std": statistics.stdev(values) if len(values) > 1 else math.nan,
        "diverged": outcomes["diverged"],
        "failed": outcomes["failed"],
        "stopped": outcomes["stopped"],
        "missing": outcomes["new"] + outcomes["interrupted"] + outcomes["running"],
    }


def _key(trial: SweepTrial) -> dict[str, Any]:
    return {"rho": trial.config.rho, "scheduler": trial.config.scheduler, **trial.cell}


def _value(trial: SweepTrial, run: Mapping[Any, Any], column: str) -> dict[str, Any]:
    finished = run["outcome"] == "finished"
    return {
        **_key(trial),
        "trial_id": trial.trial_id,
        "seed": trial.config.seed,
        "outcome": run["outcome"],
        "best_epoch": run["best_epoch"],
        "value": float(run[column]) if finished else math.nan,
    }
