"""Histories of what was chosen: the rows behind curves, and what is drawn of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from polysweep.analysis.data.frames import names_of
from polysweep.analysis.figures.epoch_plots import QUANTILES
from polysweep.analysis.tables.selection import Selection
from polysweep.trainer.errors import UserError

GAMMA: Final = ("gamma/mean", "gamma/cap_share", "gamma/zero_share")


def chosen_history(selection: Selection, cells: pd.DataFrame, lines: Sequence[str]) -> pd.DataFrame:
    """The history of the chosen trials of these cells that have finished, so that n is one along a curve.

    Columns trial_id, rho, scheduler, seed, the fields of `lines`, epoch, and of the metric, the ascent gain and the
    step size those that were logged; without rows where no trial has finished.
    """
    keys = list(dict.fromkeys(["trial_id", "rho", "scheduler", "seed", *lines]))
    own = {selection.key(cell) for cell in cells.to_dict("records")}
    runs = selection.values[selection.values["outcome"] == "finished"]
    trials = runs[[selection.key(run) in own for run in runs.to_dict("records")]][keys] if len(runs) else runs
    if not len(trials):
        return pd.DataFrame({name: [] for name in (*keys, "epoch")})
    history = selection.pulled.columns(["epoch", "_step", selection.metric, "ascent_gain", *GAMMA])
    history = history[history["trial_id"].isin(trials["trial_id"])].merge(
        trials.astype({"trial_id": history["trial_id"].dtype}), on="trial_id"
    )
    if "epoch" not in history and "_step" in history:
        history = history.rename(columns={"_step": "epoch"})
    numbers = [name for name in history.columns if name not in keys]
    return history.astype(dict.fromkeys(numbers, float))


def over_epochs(
    history: pd.DataFrame, columns: str | Sequence[str], lines: str | Sequence[str] = "scheduler"
) -> pd.DataFrame:
    """Per radius, line and epoch the n trials' mean, std, median and quantiles of each column: what is drawn."""
    groups = history.groupby(["rho", *names_of(lines), "epoch"], dropna=False)
    low, high = QUANTILES
    aggregated: dict[str, Any] = {"n": groups.size()}
    for column in names_of(columns):
        if column not in history:
            continue
        one = groups[column]
        aggregated |= {
            f"{column} mean": one.mean(),
            f"{column} std": one.std(),
            f"{column} median": one.median(),
            f"{column} {low:.0%}": one.quantile(low),
            f"{column} {high:.0%}": one.quantile(high),
        }
    return pd.DataFrame(aggregated).reset_index()


def perturbed(history: pd.DataFrame) -> pd.DataFrame:
    """The runs whose optimizer perturbs: of all others f(e) - f(x) is 0 in every step."""
    if "ascent_gain" not in history:
        return history
    moves = history["ascent_gain"].fillna(0.0).ne(0.0).groupby(history["trial_id"]).transform("any")
    return history[moves]


def require_history(selection: Selection) -> None:
    """Raise `UserError` if no trial has an epoch to show: neither a result nor an end."""
    runs = selection.pulled.runs
    if not runs["best_epoch"].notna().any() and not runs["outcome"].isin(["diverged", "failed", "stopped"]).any():
        raise UserError(f"sweep {selection.pulled.protocol.name!r}: no trial has finished an epoch yet")
