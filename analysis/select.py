"""The tuning protocol: one choice of the tuned parameters per cell, by the mean over seeds. Frames in, frames out."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pandas as pd

from analysis.frames import EPOCHS, Pulled, direction, plain, require_metric, scores
from analysis.stats import bootstrap_intervals
from trainer.history import METRICS, SPLITS
from trainer.registry import UserError, expected

TABLE_KEYS: Final = ("rho", "scheduler")
OUTCOMES: Final = ("diverged", "failed", "stopped", "missing")
_MISSING: Final = ("new", "interrupted", "running")


@dataclass(frozen=True)
class Selection:
    """What was chosen, and what it scored.

    `cells`: one row per cell: rho, scheduler, the other fields of the cell, the tuned fields as chosen, `selected`,
    `candidates` (how many), `budget` (runs that the number was chosen from), `seeds`, `n`, `mean`, `std` (sample,
    ddof = 1; NaN for n = 1), how many seeds are `diverged`, `failed`, `stopped`, `missing`; and of the choice:
    `score` (the winner's mean of what chose), `runner_up`, `margin` (by how much it won, in the direction of the goal;
    NaN without a runner-up), `ties` (other candidates with its score), `edge` (tuned fields whose chosen value is the
    smallest or largest that was tried in the cell).
    `values`: one row per run of the chosen candidates, with its `value`.
    `candidates`: one row per candidate with its `rank` in the cell, 1 the chosen one, and its `score`.
    """

    pulled: Pulled
    metric: str  # reported
    epoch: str  # best or last
    by: str  # the metric that chose
    cells: pd.DataFrame
    values: pd.DataFrame
    candidates: pd.DataFrame

    @property
    def varying(self) -> list[str]:
        """The fields besides rho and scheduler that tell cells apart."""
        return [name for name in self.pulled.protocol.cell if name not in TABLE_KEYS]

    def key(self, cell: Mapping[Any, Any]) -> tuple[str, ...]:
        """What tells a row of `cells`, `values` or `candidates` that belongs to one cell from those of all others."""
        return tuple([shown(cell[name]) for name in dict.fromkeys([*TABLE_KEYS, *self.pulled.protocol.cell])])

    def cell_key(self, row: Mapping[Any, Any]) -> tuple[str, ...]:
        """What all candidates of one cell share, also where the radius or the scheduler is tuned."""
        return tuple([shown(row[name]) for name in self.pulled.protocol.cell])

    @cached_property
    def by_seed(self) -> dict[tuple[str, ...], dict[Any, float]]:
        """By the key of a cell the value of each of its finished seeds."""
        found: dict[tuple[str, ...], dict[Any, float]] = {}
        names = list(dict.fromkeys([*TABLE_KEYS, *self.pulled.protocol.cell, "seed", "outcome", "value"]))
        for run in self.values[names].to_dict("records"):
            if run["outcome"] == "finished" and not math.isnan(run["value"]):
                found.setdefault(self.key(run), {})[run["seed"]] = run["value"]
        return found

    @cached_property
    def intervals(self) -> dict[tuple[str, ...], tuple[float, float]]:
        """By the key of a cell the 95 % percentile bootstrap interval of its mean, NaN for fewer than two seeds."""
        keys = list(self.by_seed)
        return dict(zip(keys, bootstrap_intervals([list(self.by_seed[key].values()) for key in keys]), strict=True))

    @property
    def on_test(self) -> bool:
        """Whether the test set chose the epoch or a tuned parameter."""
        return self.selected_on == "test"

    @property
    def selected_on(self) -> str:
        """The set that chose the epoch or a tuned parameter: train, val or test; `nothing` where neither was chosen."""
        chosen = self.epoch == "best" or bool(self.pulled.protocol.tuned)
        head, slash, _ = self.by.partition("/")
        return (head if slash and head in SPLITS else self.by) if chosen else "nothing"

    @property
    def is_maximal(self) -> bool | None:
        """Whether a larger value of the reported metric is better; None where nobody knows: then none is the best."""
        return direction(self.metric, self.pulled.protocol)


def shown(value: Any) -> str:
    """A field's value in a table, `-` where it does not apply."""
    return "-" if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)) else str(value)


def select(pulled: Pulled, *, metric: str | None = None, epoch: str = "best", by: str | None = None) -> Selection:
    """Choose one candidate per cell.

    Candidates of a cell are its choices of the tuned parameters. They are ranked by the number of finished seeds, then
    by the mean over those seeds of `by` (at its best epoch, or the last), then by their order in the spec. `by` is the
    sweep's metric by default; `metric` is what is reported, by default the sweep's metric too.

    Raises `UserError` for an unknown metric or epoch, for one that no run logged, and for a cell whose runs cannot be
    averaged: of several lengths or versions of the trainer's numbers, or two of one seed.
    """
    protocol = pulled.protocol
    metric, by = metric or protocol.metric, by or protocol.metric
    if epoch not in EPOCHS:
        raise UserError(f"--epoch: {epoch!r}; expected best or last")
    for option, name in (("--metric", metric), ("--select-by", by)):
        _require(pulled, name, option)
    maximal = direction(by, protocol)
    if maximal is None:
        raise UserError(
            f"--select-by: whether a larger {by!r} is better is not known; pull it as the metric, with a goal"
        )
    cells: dict[tuple[Any, ...], dict[tuple[Any, ...], list[dict[str, Any]]]] = {}
    for run in _runs(pulled, metric, epoch, by, maximal):
        key = tuple(run[name] for name in protocol.cell)
        cells.setdefault(key, {}).setdefault(tuple(run[name] for name in protocol.tuned), []).append(run)
    chosen_rows, value_rows, candidate_rows = [], [], []
    for candidates in cells.values():
        described = []
        for members in candidates.values():
            _require_alike(members, protocol.cell)
            described.append((_describe(members, protocol.tuned), members))
        ranked = sorted(described, key=lambda pair: _rank(pair[0], maximal))  # stable
        candidate_rows += [{**row, "rank": rank} for rank, (row, _) in enumerate(ranked, start=1)]
        (winner, members), rows = ranked[0], [row for row, _ in ranked]
        chosen_rows.append({**winner, **_choice(rows, protocol.tuned, maximal)})
        value_rows += [_value(run) for run in members]
    return Selection(pulled, metric, epoch, by, _frame(chosen_rows), _frame(value_rows), _frame(candidate_rows))


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a frame in which a count that some rows lack stays a count."""
    found = pd.DataFrame(rows)
    for name in found.columns:
        values = [row.get(name) for row in rows]
        if None in values and any(isinstance(value, int) for value in values):
            found[name] = pd.Series(values, dtype=object)
    return found


def _require(pulled: Pulled, metric: str, option: str) -> None:
    """Raise `UserError` for a metric that cannot be reported."""
    there = pulled.logged or list(METRICS)
    numbers = [name for name in there if not name.startswith("_") and _is_number(pulled, name)]
    if metric not in numbers:
        raise UserError(f"{option}: unknown metric {metric!r}; {expected(metric, numbers)}")
    fractions = plain(pulled.runs["val_fraction"]) if "val_fraction" in pulled.runs else [1]
    if metric.startswith(f"{SPLITS[1]}/") and not any(fractions):
        raise UserError(f"{option}: {metric} was not measured: the sweep holds nothing out (val_fraction = 0)")
    if (pulled.runs["outcome"] == "finished").any():
        require_metric(pulled, metric, option)


def _is_number(pulled: Pulled, name: str) -> bool:
    """Whether a column can be averaged; of one that was never measured the type is not known."""
    column = pulled.runs.get(f"last/{name}")
    return column is None or bool(column.isna().all()) or pd.api.types.is_numeric_dtype(column.dtype)


def _runs(pulled: Pulled, metric: str, epoch: str, by: str, maximal: bool) -> list[dict[str, Any]]:
    """Per run what the choice needs: the fields of its cell, `value` (reported), `score` (chooses)."""
    protocol, runs = pulled.protocol, pulled.runs
    fields = [
        *protocol.cell,
        *protocol.tuned,
        *TABLE_KEYS,
        "trial_id",
        "outcome",
        "seed",
        "best_epoch",
        "numerics",
        "epoch",
    ]
    columns = {name: plain(runs[name]) if name in runs else [None] * len(runs) for name in dict.fromkeys(fields)}
    if by == protocol.metric or epoch == "last":
        reported, scored = (plain(runs[f"{epoch}/{name}"]) for name in (metric, by))
    else:
        found = _rescored(pulled, metric, by, maximal)
        reported, scored, columns["best_epoch"] = (
            found[f"best/{metric}"], found[f"best/{by}"], found["best_epoch"]
        )  # fmt: skip
    columns |= {"value": reported, "score": scored}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _rescored(pulled: Pulled, metric: str, by: str, maximal: bool) -> dict[str, list[Any]]:
    """The values at the best epoch by another metric than the sweep's."""
    names = [
        name for name in dict.fromkeys(["epoch", "_step", metric, by]) if name in ("epoch", "_step", *pulled.logged)
    ]
    history = pulled.load(["trial_id", *names])
    lengths = Counter(history["trial_id"].to_pylist())  # in the order of the history, which that of `runs` need not be
    outcomes = dict(zip(pulled.runs["trial_id"].tolist(), pulled.runs["outcome"].tolist(), strict=True))
    other = replace(pulled.protocol, metric=by, goal="maximize" if maximal else "minimize")
    found = scores(history, list(lengths.values()), [outcomes.get(i, "new") for i in lengths], other)
    places = {trial_id: at for at, trial_id in enumerate(lengths)}
    order = [places.get(trial_id) for trial_id in outcomes]
    columns = {name: column.to_pylist() for name, column in found.items()}
    return {name: [None if at is None else values[at] for at in order] for name, values in columns.items()}


def _require_alike(members: Sequence[Mapping[str, Any]], cell: Sequence[str]) -> None:
    """Raise `UserError` where the runs of one candidate may not be averaged."""
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


def _finished(members: Sequence[Mapping[str, Any]], column: str) -> list[float]:
    """The values of the finished runs, in the order of their seeds: a mean does not depend on that of the rows."""
    found = [run for run in members if run["outcome"] == "finished" and run[column] is not None]
    return [
        float(run[column]) for run in sorted(found, key=lambda run: str(run["seed"])) if not math.isnan(run[column])
    ]


def _rank(row: Mapping[str, Any], maximal: bool) -> tuple[int, float]:
    """Smaller is better: fewer seeds missing, then the mean in the direction of the goal."""
    score = row["score"]
    if math.isnan(score):
        return 0, math.inf
    return -row["scored"], -score if maximal else score


def _describe(members: Sequence[Mapping[str, Any]], tuned: Sequence[str]) -> dict[str, Any]:
    values, scored = _finished(members, "value"), _finished(members, "score")
    outcomes = Counter(run["outcome"] for run in members)
    first = members[0]
    choice = {name: first[name] for name in tuned if first[name] is not None}
    hidden = ("trial_id", "outcome", "seed", "best_epoch", "numerics", "epoch", "value", "score", *tuned)
    return {
        **{name: first[name] for name in TABLE_KEYS},
        **{name: value for name, value in first.items() if name not in (*hidden, *TABLE_KEYS)},
        **choice,
        "selected": " ".join(f"{name}={value}" for name, value in choice.items()),
        "seeds": len(members),
        "n": len(values),
        "mean": statistics.fmean(values) if values else math.nan,
        "std": statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan,
        "score": statistics.fmean(scored) if scored else math.nan,
        "scored": len(scored),
        **{name: outcomes[name] for name in OUTCOMES[:3]},
        "missing": sum(outcomes[name] for name in _MISSING) + outcomes["finished"] - len(values),
    }


def _choice(ranked: Sequence[Mapping[str, Any]], tuned: Sequence[str], maximal: bool) -> dict[str, Any]:
    """How a cell was decided, from its candidates in the order of their ranks."""
    winner, others = ranked[0], ranked[1:]
    comparable = [row for row in others if row["scored"]]
    runner_up = comparable[0] if comparable else None
    margin = math.nan
    if runner_up is not None and winner["scored"]:
        margin = (winner["score"] - runner_up["score"]) * (1 if maximal else -1)
    tried = {name: sorted({row[name] for row in ranked if isinstance(row.get(name), int | float)}) for name in tuned}
    edge = [name for name, values in tried.items() if len(values) > 1 and winner.get(name) in (values[0], values[-1])]
    edge = edge if winner["scored"] else []
    return {
        "selected": winner["selected"] if winner["scored"] else "",
        "candidates": len(ranked),
        "budget": sum(row["seeds"] for row in ranked),
        "runner_up": runner_up["selected"] if runner_up is not None else "",
        "margin": margin,
        "ties": sum(_rank(row, maximal) == _rank(winner, maximal) for row in others) if winner["scored"] else 0,
        "edge": " ".join(edge),
    }


def _value(run: Mapping[str, Any]) -> dict[str, Any]:
    finished = run["outcome"] == "finished" and run["value"] is not None
    hidden = ("value", "score", "numerics", "epoch")
    return {
        **{name: run[name] for name in TABLE_KEYS},
        **{name: value for name, value in run.items() if name not in hidden},
        "value": float(run["value"]) if finished else math.nan,
    }
