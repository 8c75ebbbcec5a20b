"""The candidates of a cell: what each scored, how they rank, and whether one without a result could still win. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from polysweep.analysis.data.frames import SelectionRule
from polysweep.analysis.tables.selection import TABLE_KEYS, chosen_fields, chosen_text, format_value, number
from polysweep.sweeps.planning.ranking import order_of, rank_of

OUTCOMES: Final = ("diverged", "failed", "stopped", "missing")
MOST_LEADING: Final = 3
OF_RUNS: Final = (
    "trial_id", "outcome", "seed", "best_epoch", "numerics", "epoch", "stalled", "cap_share", "zero_share",
    "value", "score",
)  # fmt: skip
"""What the choice needs of a run besides its fields."""
OF_CHOICE: Final = ("scores", "lacking", "variant")
"""What it needs of a candidate and nobody else does."""


def undecided(
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
        [*([] if winner["lacking"] else [winner]), *rivals],
        key=lambda row: order_of(row["lost"], row["score"], maximal),
    )
    runs = sum(row["lacking"] for row in rivals)
    counts = {name: sum(row[name] for row in leading) for name in ("failed", "diverged", "stopped")}
    why = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    begun = [f"{row['selected']} {_so_far(row, metric)}" for row in leading if row["n"]]
    more = [f"{len(begun) - MOST_LEADING} more"] if len(begun) > MOST_LEADING else []
    return {
        **{name: leading[0][name] for name in ("n", "scored", *OUTCOMES, "lost", "stalled")},
        **dict.fromkeys(("mean", "std", "score", "margin", "cap_share"), math.nan),
        **dict.fromkeys(("selected", "runner_up", "edge"), ""),
        **dict.fromkeys(tuned),
        "ties": 0,
        "undecided": f"{runs} {'run' if runs == 1 else 'runs'} without a result could change the choice"
        + (f" ({why})" if why else ""),
        "leading": "; ".join([*begun[:MOST_LEADING], *more]),
    }


def reported(winner: Mapping[str, Any], members: Sequence[Mapping[str, Any]], rule: SelectionRule) -> dict[str, Any]:
    """The numbers of a cell of a protocol: of the reporting runs of its chosen candidate, if there are any."""
    chose = {name: winner[name] for name in ("score", "scored")}
    if members:
        row = {**describe(members, rule.tuned), **chose}
        lacking = row["lacking"]
        why = f"{lacking} of {row['seeds']} reporting seeds have no result" if lacking else ""
        return {**row, "undecided": why, "leading": ""}
    assert rule.roles is not None
    seeds = len(rule.roles.report_on)
    return {
        **winner,
        **dict.fromkeys(("n", *OUTCOMES, "lost", "stalled"), 0),
        **dict.fromkeys(("mean", "std", "cap_share"), math.nan),
        **{"seeds": seeds, "missing": seeds, "undecided": f"its {seeds} reporting seeds have not run"},
        "leading": f"{winner['selected'] or 'its only candidate'}, to be reported on {seeds} seeds",
    }


def _so_far(row: Mapping[str, Any], metric: str) -> str:
    mean = number(row["mean"], metric)
    lost = "".join(f", {row[name]} {name}" for name in OUTCOMES if row[name])
    return f"{mean} ({row['n']}/{row['seeds']}{lost})"


def finished_values(members: Sequence[Mapping[str, Any]], column: str) -> list[float]:
    """The values of the finished runs, in the order of their seeds: a mean does not depend on that of the rows."""
    finished = [run for run in members if run["outcome"] == "finished" and run[column] is not None]
    return [
        float(run[column]) for run in sorted(finished, key=lambda run: str(run["seed"])) if not math.isnan(run[column])
    ]


def describe(members: Sequence[Mapping[str, Any]], tuned: Sequence[str]) -> dict[str, Any]:
    """A candidate, from its runs: those that there are, and of a sweep those that there should be."""
    seeds = len(members)
    values, scored = finished_values(members, "value"), finished_values(members, "score")
    finished = [run for run in members if run["outcome"] == "finished"]
    outcomes = Counter(run["outcome"] for run in members)
    first = members[0]
    choice = chosen_fields(first, tuned)
    shares = [run["cap_share"] for run in finished if format_value(run["cap_share"]) != "-"]
    lost = outcomes["diverged"] + outcomes["stopped"]
    return {
        **{name: first[name] for name in TABLE_KEYS},
        **{name: value for name, value in first.items() if name not in (*OF_RUNS, *tuned, *TABLE_KEYS)},
        **choice,
        "selected": chosen_text(first, tuned),
        "seeds": seeds,
        "n": len(values),
        "mean": _mean(values) if values else math.nan,
        "std": statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan,
        "score": _mean(scored) if scored else math.nan,
        "scored": len(scored),
        "scores": scored,
        **{name: outcomes[name] for name in OUTCOMES[:3]},
        "missing": seeds - len(values) - sum(outcomes[name] for name in OUTCOMES[:3]),
        "stalled": sum(run["stalled"] is True for run in finished),
        "cap_share": statistics.fmean(shares) if shares else math.nan,
        "lost": lost,
        "lacking": seeds - len(scored) - lost,
    }


def choice(ranked: Sequence[Mapping[str, Any]], protocol: SelectionRule, maximal: bool) -> dict[str, Any]:
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
        "ties": sum(rank_of(row, maximal) == rank_of(winner, maximal) for row in others) if winner["scored"] else 0,
        "edge": " ".join(edge),
    }


def _is_at_edge(
    name: str, winner: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]], protocol: SelectionRule
) -> bool:
    """Whether a tuned field's chosen value is at an end of its range, or if it has none of what was tried."""
    chosen = winner.get(name)
    if not isinstance(chosen, int | float):
        return False
    if protocol.ranges:
        ends = protocol.ranges.get((winner["variant"], name))
        return ends is not None and ends.is_at_end(chosen)
    tried = sorted({row[name] for row in candidates if isinstance(row.get(name), int | float)})
    return len(tried) > 1 and chosen in (tried[0], tried[-1])


def _mean(values: Sequence[float]) -> float:
    """The mean; infinite if their sum is beyond any number."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return math.copysign(math.inf, values[0])
