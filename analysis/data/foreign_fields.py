"""What the config fields, columns and states of a W&B project mean here, also of one that is not ours."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from polysweep.analysis.data.address import Address
from polysweep.analysis.data.frames import by_name, to_arrow
from polysweep.analysis.data.from_store import PROVENANCE
from polysweep.trainer.errors import UserError, expected
from polysweep.trainer.wandb_runs import ORIGIN

_OF_ORIGIN: Final = f"{ORIGIN}."
OUTCOMES: Final = ("finished", "diverged", "failed", "stopped")
PARENTS: Final = ("task", "model", "optimizer", "scheduler")
"""What decides whether another field applies."""
OURS: Final = frozenset(
    (
        *("trial_id", "sweep", "outcome", "best_epoch", "epoch", "seconds", "started", "error", "diverged_step"),
        *("numerics", "n", "mean", "std", "seeds", "score", "scored", "value", "rank", "selected", "candidates"),
        *("budget", "margin", "ties", "edge", "runner_up", "missing", "failed", "stopped", "diverged", "stalled"),
        *("undecided", "leading", "cap_share", "zero_share", "variant", "lost"),
        *("table", "metric", "state", "point", "trial_ids"),
    )
)
"""Columns of ours, which a config field of somebody else's must not replace."""
FLOATS: Final = frozenset(
    (
        "rho",
        "weight_decay",
        "lr",
        "lr_min",
        "gamma_b",
        "lower_bound",
        "momentum",
        "label_smoothing",
        "label_noise",
        "val_fraction",
    )
)
"""The fields of our configs that are floats. Listed, so that reading results needs no code of the configs."""

FEWEST_POINTS: Final = 10
DRAWN: Final = 0.9
"""The share of points with a value of their own from which on the values of a field look drawn."""


def metric_of(address: Address, metric: str | None, goal: str | None, history: pa.Table) -> tuple[str, str]:
    """What selects, and in which direction.

    Raises `UserError` for one that no run logged, or that is no number, and where its direction is not known.
    """
    metric = metric or "test/top1"
    kinds = {one.name: one.type for one in history.schema if not one.name.startswith("_") and one.name != "trial_id"}
    numbers = [n for n, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_floating(kind)]
    if not numbers:
        raise UserError(f"{address}: no run has logged a number")
    if metric not in numbers:
        what = "is not a number" if metric in kinds else "was logged by no run"
        raise UserError(f"{address}: --metric: {metric!r} {what}; {expected(metric, numbers)}")
    maximal = by_name(metric)
    if goal is None and maximal is None:
        raise UserError(f"{address}: --goal: is a larger {metric!r} better? expected maximize or minimize")
    return metric, goal or ("maximize" if maximal else "minimize")


def require_mapping(
    address: Address, mapping: Mapping[str, str], configs: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> None:
    """Raise `UserError` for a name that nobody has, and for one of ours that is there already."""
    fields = {name for config in configs for name in config}
    logged = set(columns)
    for ours, name in mapping.items():
        if name not in fields | logged:
            raise UserError(f"{address}: --map: no run has {name!r}; {expected(name, fields | logged)}")
        if any(name in there and ours in there for there in (fields, logged)):
            raise UserError(f"{address}: --map: {ours}={name}: the runs have {ours!r} too, and it would be lost")


def column_of(name: str) -> str:
    """The column of `runs` that has a config field; one that is named like a column of ours gets a prefix."""
    return f"config.{name}" if name in OURS else name


def field_of(name: str, values: Sequence[Any]) -> pa.Array:
    """A config field; the numbers of our own fields as they are there, although JSON writes 1.0 as 1."""
    if name in FLOATS and all(value is None or type(value) in (int, float) for value in values):
        with suppress(OverflowError):  # of an int that no float can hold: it stays text
            values = [None if value is None else float(value) for value in values]
    if None in values and any(map(_is_nan, values)):  # a table shows both as -, and they are not one cell
        values = ["nan" if _is_nan(value) else value for value in values]
    return to_arrow(values)


def outcome_of(run: Mapping[str, Any], is_ours: bool) -> str:
    """What became of a run: its own word where it left one, else what W&B says."""
    if not run:
        return "new"
    logged, state = run["summary"].get("outcome"), run["state"]
    if state == "running":
        return "running"
    if logged in OUTCOMES:
        return str(logged)
    if is_ours and logged == "running":
        return "interrupted"
    if state in ("finished", "failed"):
        return str(state)
    return "interrupted" if is_ours else "failed"  # crashed, killed, preempted: a launch of ours goes on with it


def looks_drawn(configs: Sequence[Mapping[str, Any]], cell: Sequence[str]) -> bool:
    """Whether the runs of a project are points of a search: some number is another one in nearly every point."""
    points = {json.dumps([config.get(name) for name in cell], default=str) for config in configs}
    values = [[config.get(name) for config in configs] for name in cell]
    numbers = [column for column in values if all(type(value) in (int, float) for value in column)]
    return len(points) >= FEWEST_POINTS and any(len(set(column)) >= DRAWN * len(points) for column in numbers)


def columns_of(config: Mapping[str, Any], theirs: Mapping[str, str]) -> dict[str, Any]:
    """By column of `runs` the fields of a flat config; `theirs` has by the name of a field the one of `--map`."""
    return {column_of(theirs.get(key, key)): value for key, value in config.items() if not key.startswith(_OF_ORIGIN)}


def origin_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """By column of `runs` where the numbers of a run of ours come from; empty for any other run."""
    return {key.removeprefix(_OF_ORIGIN): value for key, value in config.items() if key.startswith(_OF_ORIGIN)}


def origin_columns(origins: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns that say so, as of a Store; none in a project without runs of ours."""
    names = dict.fromkeys(name for origin in origins for name in origin)
    return list(dict.fromkeys(["width", *PROVENANCE, *names])) if names else []


def in_order(configs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[int]:
    """The places of the configs in the order of their values of `names`: what is absent, numbers, then text."""

    def rank(value: Any) -> tuple[int, float, str]:
        if value is None:
            return 0, 0.0, ""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 2, 0.0, str(value)
        return 1, math.inf if _is_nan(value) else _real(value), str(value)

    keys = [[rank(config.get(name)) for name in names] for config in configs]
    return sorted(range(len(configs)), key=keys.__getitem__)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _real(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # of an int that no float can hold
        return math.inf if value > 0 else -math.inf


def cell_fields(
    address: Address, configs: Sequence[Mapping[str, Any]], tuned: Sequence[str], ignore: Sequence[str]
) -> tuple[str, ...]:
    """The fields that vary, without the tuned ones, the ignored ones and the seed.

    A field that some runs lack and that has one value elsewhere does not vary where task, model, optimizer and
    scheduler decide which runs have it.
    """
    names = list(dict.fromkeys(name for config in configs for name in config))
    for option, asked in (("--tuned", tuned), ("--ignore", ignore)):
        for name in asked:
            if name not in names:
                raise UserError(f"{address}: {option}: no run has the config field {name!r}; {expected(name, names)}")
    fields = []
    for name in names:
        if name in ("seed", *tuned, *ignore):
            continue
        values = {json.dumps(config.get(name)) for config in configs}
        if len(values) == 1:
            continue
        if len(values) == 2 and "null" in values and name not in PARENTS:
            by_parent: dict[str, set[bool]] = {}
            for config in configs:
                key = json.dumps([config.get(parent) for parent in PARENTS])
                by_parent.setdefault(key, set()).add(config.get(name) is None)
            if len(by_parent) > 1 and all(len(kinds) == 1 for kinds in by_parent.values()):
                continue
        fields.append(name)
    return tuple(fields)
