"""The tuning protocol: one choice of the tuned parameters per cell, by the mean over seeds. Frames in, frames out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from polysweep.analysis.data.best_epochs import scores
from polysweep.analysis.data.frames import EPOCHS, RunSet, SelectionRule, direction, require_metric, to_python
from polysweep.analysis.tables.candidates import (
    OF_CHOICE,
    OF_RUNS,
    choice,
    describe,
    finished_values,
    reported,
    undecided,
)
from polysweep.analysis.tables.selection import TABLE_KEYS, Selection, format_value
from polysweep.sweeps.planning.ranking import best_possible, rank_of, that_could_win
from polysweep.sweeps.planning.welch import Sample
from polysweep.sweeps.spec.protocol import metric_reported
from polysweep.trainer.errors import UserError, expected
from polysweep.trainer.history import CORRUPTED, METRICS, SPLITS

Runs = list[dict[str, Any]]
"""The runs of one candidate."""


def select(pulled: RunSet, *, metric: str | None = None, epoch: str | None = None, by: str | None = None) -> Selection:
    """Choose one candidate per cell.

    Candidates of a cell are its choices of the tuned parameters. The winner is the first, in the order of the spec, of
    those with the best mean over seeds of `by` (at its best epoch, or the last), among candidates of which every seed
    has a result. A seed that diverged, or that early termination stopped, is a result: it ranks its candidate behind
    those with fewer of them. A failed or missing seed is none: while a candidate that lacks one could still win, the
    cell is undecided. `by` is the sweep's metric by default; `metric` is what is reported, by default the sweep's
    metric too, at its best epoch.

    With a protocol tuning runs choose, and the numbers of a cell are those of its reporting runs alone. Retrained ones
    are reported at their last epoch, by default on the test set.

    Raises `UserError` for an unknown metric or epoch, for one that no run logged, and for a cell whose runs cannot be
    averaged: of several lengths or versions of the trainer's numbers, or two of one seed.
    """
    protocol = pulled.protocol
    metric, epoch, by = _asked(protocol, _logged_name(pulled, metric), epoch, _logged_name(pulled, by))
    for option, name in (("--metric", metric), ("--select-by", by)):
        _require(pulled, name, option)
    maximal = direction(by, protocol)
    if maximal is None:
        raise UserError(
            f"--select-by: whether a larger {by!r} is better is not known; pull it as the metric, with a goal"
        )
    cells, reports = _by_cell(pulled, metric, epoch, by, maximal)
    same_set = metric.partition("/")[0] == by.partition("/")[0] or "/" not in metric + by
    chose_here = same_set and not metric.endswith("/ece")  # on what is reported; what fits best need not be calibrated
    chosen_rows, value_rows, candidate_rows = [], [], []
    samples: dict[tuple[str, ...], Mapping[str, Sample]] = {}
    for key, candidates in cells.items():
        described = []
        for members in candidates.values():
            _require_alike(members, protocol.cell)
            described.append((describe(members, protocol.tuned), members))
        reporting = reports.get(key, [])
        chosen = _tuned_values(reporting, protocol)  # as the Store has decided: what has come to its rivals is late
        ranked = sorted(described, key=lambda pair: rank_of(pair[0], maximal))  # stable
        ranked.sort(key=lambda pair: chosen is not None and chosen != _tuned_values(pair[1], protocol))
        candidate_rows += [{**row, "rank": rank} for rank, (row, _) in enumerate(ranked, start=1)]
        (winner, members), rows = ranked[0], [row for row, _ in ranked]
        rivals = that_could_win([row for row, _ in described], winner, best_possible(by, maximal), maximal)
        rivals = [] if reporting else rivals
        cell = {**winner, **choice(rows, protocol, maximal), "undecided": "", "leading": ""}
        compared = ranked if chose_here else ranked[:1]
        if rivals:
            cell |= undecided(rivals, winner, metric, maximal, protocol.tuned, len(rows))
        if protocol.roles and not (rivals and len(rows) > 1):
            members = reporting
            _require_alike(members, protocol.cell)
            cell |= reported(winner, members, protocol)
            compared = [({**winner, "lacking": 0}, members)]
        if not cell["undecided"]:
            samples[tuple(map(format_value, key))] = {
                row["selected"]: Sample.of(finished_values(runs, "value"))
                for row, runs in compared
                if row is compared[0][0] or (not row["lacking"] and row["lost"] == winner["lost"])
            }
        chosen_rows.append(cell)
        value_rows += [_value(run) for run in members] if len(rows) == 1 or not rivals else []
    values = _frame(value_rows)
    if not value_rows:
        values = pd.DataFrame(columns=[*dict.fromkeys([*TABLE_KEYS, *protocol.cell, *OF_RUNS, *protocol.tuned])])
    return Selection(pulled, metric, epoch, by, _frame(chosen_rows), values, _frame(candidate_rows), samples)


def _logged_name(pulled: RunSet, metric: str | None) -> str | None:
    """`test/loss` of `test/nll` of a classification: without label smoothing its loss is the NLL."""
    split, _, name = (metric or "").rpartition("/")
    if name == "nll" and metric not in pulled.logged and f"{split}/top1" in pulled.logged:
        return f"{split}/loss"
    return metric


def _asked(rule: SelectionRule, metric: str | None, epoch: str | None, by: str | None) -> tuple[str, str, str]:
    """What is reported, at which epoch, and what selects. Raises `UserError` for what is not possible."""
    if epoch is not None and epoch not in EPOCHS:
        raise UserError(f"--epoch: {epoch!r}; expected best or last")
    if rule.roles and by is not None and by != rule.metric:
        raise UserError(f"--select-by: {by!r}, but the sweep's protocol has chosen by {rule.metric!r}; leave it out")
    if rule.roles and rule.roles.retrain:
        metric = metric or metric_reported(rule.metric, rule.roles)
        if epoch == "best":
            raise UserError(f"--epoch: best, but retrained runs do not measure {rule.metric!r}; expected last")
        if metric.startswith("val/"):
            raise UserError(f"--metric: {metric!r} is not measured by retrained runs; expected one of the test set")
        epoch = "last"
    metric, by = metric or rule.metric, by or rule.metric
    for option, name in (("--metric", metric), ("--select-by", by)):
        measured_at = rule.probed.get(name)
        if measured_at is not None and epoch not in (None, measured_at):
            raise UserError(f"{option}: {name!r} was measured at the {measured_at} epoch; leave out --epoch {epoch}")
        epoch = epoch or measured_at
    return metric, epoch or "best", by


def _by_cell(
    pulled: RunSet, metric: str, epoch: str, by: str, maximal: bool
) -> tuple[dict[tuple[Any, ...], dict[tuple[Any, ...], Runs]], dict[tuple[Any, ...], Runs]]:
    """By cell the runs of each candidate; and with a protocol its reporting runs."""
    rule = pulled.protocol
    cells: dict[tuple[Any, ...], dict[tuple[Any, ...], Runs]] = {}
    reports: dict[tuple[Any, ...], Runs] = {}
    for run in _runs(pulled, metric, epoch, by, maximal):
        key = tuple(run[name] for name in rule.cell)
        if run.pop("is_added"):
            reports.setdefault(key, []).append({**run, "score": run["value"]})
        else:
            cells.setdefault(key, {}).setdefault(tuple(run[name] for name in rule.tuned), []).append(run)
    return cells, reports


def _tuned_values(members: Runs, rule: SelectionRule) -> tuple[Any, ...] | None:
    """The choice of the tuned parameters of a candidate; None without runs."""
    return tuple(members[0][name] for name in rule.tuned) if members else None


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a frame in which a count that some rows lack stays a count."""
    rows = [{name: value for name, value in row.items() if name not in OF_CHOICE} for row in rows]
    frame = pd.DataFrame(rows)
    for name in frame.columns:
        values = [row.get(name) for row in rows]
        if None in values and any(isinstance(value, int) for value in values):
            frame[name] = pd.Series(values, dtype=object)
    return frame


def _require(pulled: RunSet, metric: str, option: str) -> None:
    """Raise `UserError` for a metric that cannot be reported."""
    there = pulled.logged or list(METRICS)
    numbers = [name for name in there if not name.startswith("_") and _is_number(pulled, name)]
    if metric not in numbers:
        is_probed = metric.startswith("curvature/") or metric.removeprefix("test/") in CORRUPTED
        hint = f"; `polysweep probe {pulled.protocol.name}` measures it" if is_probed else ""
        raise UserError(f"{option}: unknown metric {metric!r}{hint}; {expected(metric, numbers)}")
    fractions = to_python(pulled.runs["val_fraction"]) if "val_fraction" in pulled.runs else [1]
    if metric.startswith(f"{SPLITS[1]}/") and not any(fractions):
        raise UserError(f"{option}: {metric} was not measured: the sweep holds nothing out (val_fraction = 0)")
    if (pulled.runs["outcome"] == "finished").any():
        require_metric(pulled, metric, option)


def _is_number(pulled: RunSet, name: str) -> bool:
    """Whether a column can be averaged; of one that was never measured the type is not known."""
    column = pulled.runs.get(f"last/{name}")
    return column is None or bool(column.isna().all()) or pd.api.types.is_numeric_dtype(column.dtype)


def _runs(pulled: RunSet, metric: str, epoch: str, by: str, maximal: bool) -> list[dict[str, Any]]:
    """Per run what the choice needs: the fields of its cell, `value` (reported), `score` (chooses)."""
    protocol, runs = pulled.protocol, pulled.runs
    fields = [*protocol.cell, *protocol.tuned, *TABLE_KEYS, *OF_RUNS[:-2], "variant", "is_added"]
    columns = {name: to_python(runs[name]) if name in runs else [None] * len(runs) for name in dict.fromkeys(fields)}
    if protocol.roles:  # which has chosen by the best epoch
        values, scored = to_python(runs[f"{epoch}/{metric}"]), to_python(runs[f"best/{by}"])
    elif by == protocol.metric or epoch == "last" or by in protocol.probed:
        values, scored = (to_python(runs[f"{epoch}/{name}"]) for name in (metric, by))
    else:
        rescored = _rescored(pulled, metric, by, maximal)
        values, scored, columns["best_epoch"] = (
            rescored[f"best/{metric}"], rescored[f"best/{by}"], rescored["best_epoch"]
        )  # fmt: skip
    columns |= {"value": values, "score": scored}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _rescored(pulled: RunSet, metric: str, by: str, maximal: bool) -> dict[str, list[Any]]:
    """The values at the best epoch by another metric than the sweep's."""
    names = [
        name for name in dict.fromkeys(["epoch", "_step", metric, by]) if name in ("epoch", "_step", *pulled.logged)
    ]
    history = pulled.load(["trial_id", *names])
    lengths = Counter(history["trial_id"].to_pylist())  # in the order of the history, which that of `runs` need not be
    outcomes = dict(zip(pulled.runs["trial_id"].tolist(), pulled.runs["outcome"].tolist(), strict=True))
    other = replace(pulled.protocol, metric=by, goal="maximize" if maximal else "minimize")
    best = scores(history, list(lengths.values()), [outcomes.get(i, "new") for i in lengths], other)
    places = {trial_id: at for at, trial_id in enumerate(lengths)}
    order = [places.get(trial_id) for trial_id in outcomes]
    columns = {name: column.to_pylist() for name, column in best.items()}
    return {name: [None if at is None else values[at] for at in order] for name, values in columns.items()}


def _require_alike(members: Sequence[Mapping[str, Any]], cell: Sequence[str]) -> None:
    """Raise `UserError` if the runs of one candidate may not be averaged."""
    if not members:
        return
    finished = [run for run in members if run["outcome"] == "finished"]
    for name, what in (("epoch", "epochs"), ("numerics", "NUMERICS")):
        values = {run[name] for run in finished if run[name] is not None}
        if len(values) > 1:
            raise UserError(_mixture(finished, name, what, values, cell))
    seeds = Counter(run["seed"] for run in members)
    seed, count = seeds.most_common(1)[0]
    if count > 1:
        twice = [run["trial_id"] for run in members if run["seed"] == seed]
        where = _where(members[0], cell)
        hint = (
            "--map seed=FIELD names the field that has the seed"
            if seed is None
            else "--ignore and --filter can tell them apart"
        )
        raise UserError(f"cell {where}: {count} runs of seed {seed}: {', '.join(twice[:4])}; {hint}")


def _mixture(runs: Sequence[Mapping[str, Any]], name: str, what: str, values: set[Any], cell: Sequence[str]) -> str:
    examples = {value: next(run["trial_id"] for run in runs if run[name] == value) for value in sorted(values)}
    listed = ", ".join(f"{value} (such as {trial_id})" for value, trial_id in examples.items())
    return f"cell {_where(runs[0], cell)} mixes runs of several {what}: {listed}; they cannot be averaged"


def _where(run: Mapping[str, Any], cell: Sequence[str]) -> str:
    return " ".join(f"{name}={run[name]}" for name in cell if run[name] is not None) or "(the only one)"


def _value(run: Mapping[str, Any]) -> dict[str, Any]:
    finished = run["outcome"] == "finished" and run["value"] is not None
    hidden = ("value", "score", "numerics", "epoch")
    return {
        **{name: run[name] for name in TABLE_KEYS},
        **{name: value for name, value in run.items() if name not in hidden},
        "value": float(run["value"]) if finished else math.nan,
    }
