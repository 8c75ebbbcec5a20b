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

from analysis.frames import EPOCHS, Protocol, Pulled, direction, plain, require_metric, scores
from analysis.stats import (
    Candidates,
    Difference,
    Sample,
    difference,
    fewer_is_better,
    mean_interval,
    more_diverged,
    untested,
)
from trainer.history import METRICS, SPLITS, is_accuracy, shown_number
from trainer.registry import UserError, expected

TABLE_KEYS: Final = ("rho", "scheduler")
OUTCOMES: Final = ("diverged", "failed", "stopped", "missing")
RESULTS: Final = ("finished", "diverged", "stopped")
"""Outcomes that say something of a candidate; a run that failed or is missing says nothing of it."""
CAPPED: Final = 0.5
"""The share of steps at the cap above which a Polyak step size is the constant one, gamma_b."""
MOST_LEADING: Final = 3
_MISSING: Final = ("new", "interrupted", "running")
_OF_RUNS: Final = (
    "trial_id", "outcome", "seed", "best_epoch", "numerics", "epoch", "stalled", "cap_share", "zero_share",
    "value", "score",
)  # fmt: skip
"""What the choice needs of a run besides its fields."""
_OF_CHOICE: Final = ("scores", "lacking", "variant")
"""What it needs of a candidate and nobody else does."""


@dataclass(frozen=True)
class Selection:
    """What was chosen, and what it scored.

    `cells`: one row per cell: rho, scheduler, the other fields of the cell, the tuned fields as chosen, `selected`,
    `candidates` (how many), `budget` (runs that the number was chosen from), `seeds`, `n`, `mean`, `std` (sample,
    ddof = 1; NaN for n = 1), how many seeds are `diverged`, `failed`, `stopped`, `missing` and `lost` (diverged or
    stopped), how many of the n are `stalled`, and the share of steps at the cap (`cap_share`); and of the choice:
    `score` (the winner's mean of what chose), `runner_up`, `margin` (by how much it won, in the direction of the goal;
    NaN without a runner-up), `ties` (other candidates with its score), `edge` (tuned fields whose chosen value is at an
    end of what was tried, or of the range of a drawn search).
    `undecided` says why a cell has no verdict yet, and is empty if it is decided. A cell of several candidates that is
    undecided has no mean; `leading` names those that could still win, and the counts are of the first of them.
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
    samples: Mapping[tuple[str, ...], Mapping[str, Sample]]
    """By `cell_key` and `selected` the reported values of the candidates that could have been chosen: the chosen one
    first, and those that have as many finished seeds. Of undecided cells there are none."""

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

    def samples_of(self, cell: Mapping[Any, Any]) -> Candidates:
        """The `samples` of a row of `cells`."""
        return list(self.samples.get(self.cell_key(cell), {}).values())

    def difference(self, plus: Sequence[Mapping[Any, Any]], minus: Sequence[Mapping[Any, Any]]) -> Difference:
        """How much better the cells `plus` are than the cells `minus`: `analysis.stats.difference`, larger is better.

        The means are of the seeds that finished. A side of which more seeds have diverged is never shown to be the
        better one. A cell whose seeds have all diverged has no mean: with two cells Fisher's test compares the counts.
        """
        cells = [*plus, *minus]
        if any(cell["undecided"] for cell in cells):
            return untested("undecided")
        if not all(cell["n"] for cell in cells):
            counts = [(int(cell["n"]), int(cell["lost"])) for cell in cells]
            return more_diverged(*counts) if len(cells) == 2 else untested("a cell has no finished seed")
        one, other = ([self._signed(self.samples_of(cell)) for cell in side] for side in (plus, minus))
        lost, others_lost = (sum(cell["lost"] for cell in side) for side in (plus, minus))
        return _not_better(difference(one, other), above=lost > others_lost, below=others_lost > lost)

    def over_all(self, cell: Mapping[Any, Any], others: Sequence[Mapping[Any, Any]]) -> Difference:
        """How much better a cell is than the best of `others`: above all of them, or below one of them."""
        if any(one["undecided"] for one in (cell, *others)):
            return untested("undecided")
        alive = [other for other in others if other["n"] and cell["n"]]
        by_count = [self.difference([cell], [other]) for other in others if other not in alive]
        tested = [one for one in by_count if not math.isnan(one.p_above)]
        if not alive:
            return tested[0]._replace(
                p_above=max(one.p_above for one in tested) if len(tested) == len(others) else 1.0,
                p_below=min(1.0, len(tested) * min(one.p_below for one in tested)),
            ) if tested else by_count[0]  # fmt: skip
        own = [self._signed(self.samples_of(cell))]
        found = difference(own, [self._union(alive)])
        no_worse = [other for other in alive if other["lost"] <= cell["lost"]]
        below = difference(own, [self._union(no_worse)]).p_below if no_worse else 1.0
        is_behind = any(other["lost"] < cell["lost"] for other in alive)
        above = max([1.0 if is_behind else found.p_above, *(one.p_above for one in tested)])
        return found if math.isnan(found.p_above) else found._replace(p_above=above, p_below=below)

    def _union(self, cells: Sequence[Mapping[Any, Any]]) -> Candidates:
        """The candidates of several cells as those of one, the best first."""
        return sorted((sample for cell in cells for sample in self._signed(self.samples_of(cell))), reverse=True)

    def by_candidate(self, cell: Mapping[Any, Any], column: str, missing: float) -> Candidates:
        """Another column of `runs` of the candidates behind `samples_of`, in their order; `missing` for no value."""
        chosen = self.samples.get(self.cell_key(cell), {})
        found: dict[str, list[float]] = {name: [] for name in chosen}
        for run in self._finished_runs.get(self.cell_key(cell), ()):
            name = _chosen_text(run, self.pulled.protocol.tuned)
            if name in found:
                value = run[column]
                found[name].append(missing if shown(value) == "-" else float(value))
        return [Sample.of(values) for values in found.values()]

    @cached_property
    def _finished_runs(self) -> dict[tuple[str, ...], list[Mapping[Any, Any]]]:
        runs = self.pulled.runs
        found: dict[tuple[str, ...], list[Mapping[Any, Any]]] = {}
        for run in runs[runs["outcome"] == "finished"].to_dict("records"):
            found.setdefault(self.cell_key(run), []).append(run)
        return found

    def _signed(self, samples: Candidates) -> Candidates:
        return samples if self.is_maximal else fewer_is_better(samples)

    def interval(self, cell: Mapping[Any, Any]) -> tuple[float, float]:
        """Student's 95 % interval of a cell's mean (`analysis.stats.mean_interval`); NaN for fewer than two seeds."""
        found = self.samples_of(cell)
        if not found or found[0].n < 2:
            return math.nan, math.nan
        low, high = mean_interval(found[0], len(found))
        return (max(low, 0.0), min(high, 1.0)) if is_accuracy(self.metric) else (low, high)

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


def _not_better(found: Difference, *, above: bool, below: bool) -> Difference:
    """A difference of which one direction is not to be claimed, whatever the means."""
    if above and not math.isnan(found.p_above):
        found = found._replace(p_above=1.0, low=-math.inf)
    if below and not math.isnan(found.p_below):
        found = found._replace(p_below=1.0, high=math.inf)
    return found


def shown(value: Any) -> str:
    """A field's value in a table, `-` where it does not apply."""
    return "-" if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)) else str(value)


def select(pulled: Pulled, *, metric: str | None = None, epoch: str = "best", by: str | None = None) -> Selection:
    """Choose one candidate per cell.

    Candidates of a cell are its choices of the tuned parameters. The winner is the first, in the order of the spec, of
    those with the best mean over seeds of `by` (at its best epoch, or the last), among candidates of which every seed
    has a result. A seed that diverged, or that early termination stopped, is a result: it ranks its candidate behind
    those with fewer of them. A failed or missing seed is none: while a candidate that lacks one could still win, the
    cell is undecided. `by` is the sweep's metric by default; `metric` is what is reported, by default the sweep's
    metric too.

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
    samples: dict[tuple[str, ...], Mapping[str, Sample]] = {}
    for key, candidates in cells.items():
        seeds = len({run["seed"] for members in candidates.values() for run in members})
        described = []
        for members in candidates.values():
            _require_alike(members, protocol.cell)
            described.append((_describe(members, protocol.tuned, seeds), members))
        ranked = sorted(described, key=lambda pair: _rank(pair[0], maximal))  # stable
        candidate_rows += [{**row, "rank": rank} for rank, (row, _) in enumerate(ranked, start=1)]
        (winner, members), rows = ranked[0], [row for row, _ in ranked]
        rivals = _that_could_win([row for row, _ in described], winner, _best_possible(by, maximal), maximal)
        if not rivals:
            samples[tuple(map(shown, key))] = {
                row["selected"]: Sample.of(_finished(runs, "value"))
                for row, runs in ranked
                if not row["lacking"] and row["n"] == winner["n"]
            }
        cell = {**winner, **_choice(rows, protocol, maximal), "undecided": "", "leading": ""}
        if rivals:
            cell |= _undecided(rivals, winner, metric, maximal, protocol.tuned, len(rows))
        chosen_rows.append(cell)
        value_rows += [_value(run) for run in members] if len(rows) == 1 or not rivals else []
    values = _frame(value_rows)
    if not value_rows:
        values = pd.DataFrame(columns=[*dict.fromkeys([*TABLE_KEYS, *protocol.cell, *_OF_RUNS, *protocol.tuned])])
    return Selection(pulled, metric, epoch, by, _frame(chosen_rows), values, _frame(candidate_rows), samples)


def _best_possible(metric: str, maximal: bool) -> float:
    """The best value that a run could still have: of our own metrics, which are all >= 0, the accuracies <= 1."""
    if metric not in METRICS:
        return math.inf if maximal else -math.inf
    return (1.0 if is_accuracy(metric) else math.inf) if maximal else 0.0


def _that_could_win(
    candidates: Sequence[Mapping[str, Any]], winner: Mapping[str, Any], best: float, maximal: bool
) -> list[Mapping[str, Any]]:
    """The candidates, in the order of the spec, that lack a seed and would win if it came out as well as it can."""

    def rank(row: Mapping[str, Any], at: int) -> tuple[int, float, int]:
        total = math.fsum([*row["scores"], *[best] * row["lacking"]])
        mean = total / (len(row["scores"]) + row["lacking"]) if row["scores"] or row["lacking"] else math.nan
        return (*_order(row["lost"], mean, maximal), at)

    ranks = [rank(row, at) for at, row in enumerate(candidates)]
    if winner["lacking"]:
        return [row for row in candidates if row["lacking"]]
    first = next(at for at, row in enumerate(candidates) if row is winner)
    return [row for at, row in enumerate(candidates) if row["lacking"] and ranks[at] < ranks[first]]


def _undecided(
    rivals: Sequence[Mapping[str, Any]],
    winner: Mapping[str, Any],
    metric: str,
    maximal: bool,
    tuned: Sequence[str],
    candidates: int,
) -> dict[str, Any]:
    """What a cell says that is undecided; with several candidates it has no mean of one of them."""
    if candidates == 1:
        return {"undecided": f"{winner['lacking']} of {winner['seeds']} seeds have no result"}
    leading = sorted(
        [*([] if winner["lacking"] else [winner]), *rivals], key=lambda row: _order(row["lost"], row["score"], maximal)
    )
    runs = sum(row["lacking"] for row in rivals)
    failed = sum(row["failed"] for row in rivals)
    begun = [f"{row['selected']} {_so_far(row, metric)}" for row in leading if row["n"]]
    more = [f"{len(begun) - MOST_LEADING} more"] if len(begun) > MOST_LEADING else []
    return {
        **{name: leading[0][name] for name in ("n", "scored", *OUTCOMES, "lost", "stalled")},
        **dict.fromkeys(("mean", "std", "score", "margin", "cap_share"), math.nan),
        **dict.fromkeys(("selected", "runner_up", "edge"), ""),
        **dict.fromkeys(tuned),
        "ties": 0,
        "undecided": f"{runs} {'run' if runs == 1 else 'runs'} without a result could change the choice"
        + (f" ({failed} failed)" if failed else ""),
        "leading": "; ".join([*begun[:MOST_LEADING], *more]),
    }


def _so_far(row: Mapping[str, Any], metric: str) -> str:
    mean = f"{100 * row['mean']:.2f}" if is_accuracy(metric) else shown_number(row["mean"])
    return f"{mean} ({row['n']}/{row['seeds']})"


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a frame in which a count that some rows lack stays a count."""
    rows = [{name: value for name, value in row.items() if name not in _OF_CHOICE} for row in rows]
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
    fields = [*protocol.cell, *protocol.tuned, *TABLE_KEYS, *_OF_RUNS[:-2], "variant"]
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


def _rank(row: Mapping[str, Any], maximal: bool) -> tuple[bool, int, float]:
    """Smaller is better: every seed has a result, fewer seeds lost, then the mean in the direction of the goal."""
    return (row["lacking"] > 0, *_order(row["lost"], row["score"], maximal))


def _order(lost: int, mean: float, maximal: bool) -> tuple[int, float]:
    return lost, math.inf if math.isnan(mean) else -mean if maximal else mean


def _describe(members: Sequence[Mapping[str, Any]], tuned: Sequence[str], seeds: int) -> dict[str, Any]:
    """A candidate, of which other candidates of its cell have `seeds` seeds."""
    values, scored = _finished(members, "value"), _finished(members, "score")
    finished = [run for run in members if run["outcome"] == "finished"]
    outcomes = Counter(run["outcome"] for run in members)
    first = members[0]
    choice = _chosen(first, tuned)
    shares = [run["cap_share"] for run in finished if shown(run["cap_share"]) != "-"]
    lost = outcomes["diverged"] + outcomes["stopped"]
    measured = min(len(values), len(scored))
    return {
        **{name: first[name] for name in TABLE_KEYS},
        **{name: value for name, value in first.items() if name not in (*_OF_RUNS, *tuned, *TABLE_KEYS)},
        **choice,
        "selected": _chosen_text(first, tuned),
        "seeds": seeds,
        "n": len(values),
        "mean": statistics.fmean(values) if values else math.nan,
        "std": statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan,
        "score": statistics.fmean(scored) if scored else math.nan,
        "scored": len(scored),
        "scores": scored,
        **{name: outcomes[name] for name in OUTCOMES[:3]},
        "missing": seeds - len(values) - sum(outcomes[name] for name in OUTCOMES[:3]),
        "stalled": sum(run["stalled"] is True for run in finished),
        "cap_share": statistics.fmean(shares) if shares else math.nan,
        "lost": lost,
        "lacking": seeds - measured - lost,
    }


def _chosen(run: Mapping[Any, Any], tuned: Sequence[str]) -> dict[str, Any]:
    """The tuned fields that apply to a run."""
    return {name: run[name] for name in tuned if shown(run[name]) != "-"}


def _chosen_text(run: Mapping[Any, Any], tuned: Sequence[str]) -> str:
    return " ".join(f"{name}={value}" for name, value in _chosen(run, tuned).items())


def _choice(ranked: Sequence[Mapping[str, Any]], protocol: Protocol, maximal: bool) -> dict[str, Any]:
    """How a cell was decided, from its candidates in the order of their ranks."""
    winner, others = ranked[0], ranked[1:]
    comparable = [row for row in others if row["scored"] and not row["lacking"]]
    runner_up = comparable[0] if comparable else None
    margin = math.nan
    if runner_up is not None and winner["scored"]:
        margin = (winner["score"] - runner_up["score"]) * (1 if maximal else -1)
    edge = [name for name in protocol.tuned if _is_at_edge(name, winner, ranked, protocol)] if winner["scored"] else []
    return {
        "selected": winner["selected"] if winner["scored"] else "",
        "candidates": len(ranked),
        "budget": sum(row["seeds"] for row in ranked),
        "runner_up": runner_up["selected"] if runner_up is not None else "",
        "margin": margin,
        "ties": sum(_rank(row, maximal) == _rank(winner, maximal) for row in others) if winner["scored"] else 0,
        "edge": " ".join(edge),
    }


def _is_at_edge(
    name: str, winner: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]], protocol: Protocol
) -> bool:
    """Whether a tuned field's chosen value is at an end of its range, or if it has none of what was tried."""
    chosen = winner.get(name)
    if not isinstance(chosen, int | float):
        return False
    if protocol.ranges:
        given = protocol.ranges.get((winner["variant"], name))
        return given is not None and given.is_at_end(chosen)
    tried = sorted({row[name] for row in candidates if isinstance(row.get(name), int | float)})
    return len(tried) > 1 and chosen in (tried[0], tried[-1])


def _value(run: Mapping[str, Any]) -> dict[str, Any]:
    finished = run["outcome"] == "finished" and run["value"] is not None
    hidden = ("value", "score", "numerics", "epoch")
    return {
        **{name: run[name] for name in TABLE_KEYS},
        **{name: value for name, value in run.items() if name not in hidden},
        "value": float(run["value"]) if finished else math.nan,
    }
