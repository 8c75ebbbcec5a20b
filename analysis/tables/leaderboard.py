"""The points of a sweep from the best to the worst: what each scored, from how many seeds, and how it ended. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from polysweep.analysis.data.display import Displayed
from polysweep.analysis.data.frames import direction
from polysweep.analysis.tables.selection import Selection, format_value
from polysweep.analysis.tables.wording import value_text
from polysweep.sweeps.planning.ranking import rank_of

SCORED: Final = (
    "rank", "mean", "std", "n", "seeds", "diverged", "failed", "stopped", "missing", "stalled", "score", "state",
    "point", "trial_ids",
)  # fmt: skip
"""The columns of a leaderboard besides the parameters."""
NOT_STARTED: Final = "not started"
LEAST_DIGITS: Final = 3
MOST_DIGITS: Final = 17
"""Digits that tell any two numbers apart."""


@dataclass(frozen=True, repr=False)
class Leaderboard(Displayed):
    """The points of a sweep, the best first.

    `points`: one row per point: `rank` (1 is the best; equal points share one; <NA> while a seed has no result), the
    parameters that vary, `mean` and `std` (sample, ddof = 1) of the reported metric over the `n` of `seeds` that have
    finished, how many seeds are `diverged`, `failed`, `stopped`, `missing` and, of the n, `stalled`; `score`, the mean
    that ranks; `state` in words, `point` (its place in the sweep, from 1) and `trial_ids`, in the order of the seeds.
    """

    selection: Selection
    points: pd.DataFrame

    @property
    def parameters(self) -> list[str]:
        """The parameters that vary between points."""
        return [name for name in self.points.columns if name not in SCORED]

    @property
    def is_maximal(self) -> bool:
        """Whether a larger value of the metric that ranks is better."""
        return bool(direction(self.selection.by, self.selection.pulled.protocol))

    @property
    def ranked(self) -> pd.DataFrame:
        """The points of which every seed has a result."""
        return self.points[self.points["rank"].notna()]

    def headline(self) -> str:
        """`made: test/top1 at the best epoch, 30 points, 24 with all results`."""
        selection = self.selection
        some = "1 point" if len(self.points) == 1 else f"{len(self.points)} points"
        name = selection.pulled.protocol.name
        return f"{name}: {selection.metric} at the {selection.epoch} epoch, {some}, {len(self.ranked)} with all results"

    def overview(self) -> pd.DataFrame:
        """Rank, value, n, the parameters at readable precision, and the state."""
        points = self.points.to_dict("records")
        texts = pd.DataFrame(readable(points, self.parameters), columns=self.parameters, index=self.points.index)
        return pd.concat([self.points[["rank", "mean", "std", "n", "seeds"]], texts, self.points["state"]], axis=1)


def leaderboard(selection: Selection) -> Leaderboard:
    """Rank all points of a sweep: its choices of every parameter but the seed, of tuned ones too.

    By the mean over seeds of the metric that selects, among points of which every seed has a result. A seed that
    diverged, or that early termination stopped, is a result: its point ranks behind those with fewer such seeds. Equal
    points share a rank. A point with a failed or missing seed has no rank yet, and comes after all that have one.
    """
    maximal = bool(direction(selection.by, selection.pulled.protocol))
    protocol = selection.pulled.protocol
    fields = [name for name in (*protocol.cell, *protocol.tuned) if name in selection.candidates]
    runs = _runs_by_point(selection, fields)
    rows: list[dict[str, Any]] = []
    for candidate in selection.candidates.to_dict("records"):
        row = {str(name): value for name, value in candidate.items()}
        place, members = runs[_key(row, fields)]
        row["lacking"] = row["seeds"] - row["scored"] - row["lost"]
        row |= {"state": _state(members), "point": place}
        row["trial_ids"] = " ".join(str(run["trial_id"]) for run in members)
        rows.append(row)
    rows.sort(key=lambda row: (*rank_of(row, maximal), row["point"]))
    ranks: dict[tuple[bool, int, float], int] = {}
    for at, row in enumerate(rows, start=1):
        rank = ranks.setdefault(rank_of(row, maximal), at)
        row["rank"] = pd.NA if row["lacking"] else rank
    columns = [*SCORED[:1], *fields, *SCORED[1:]]
    points = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=_kind(name)) for name in columns})
    return Leaderboard(selection, points)


def _kind(name: str) -> str | None:
    """Parameters keep the types of their values; ranks are whole numbers that may be missing."""
    if name not in SCORED:
        return "object"
    return "Int64" if name == "rank" else None


def _key(row: Mapping[Any, Any], fields: Sequence[str]) -> tuple[str, ...]:
    return tuple(format_value(row[name]) for name in fields)


def _runs_by_point(
    selection: Selection, fields: Sequence[str]
) -> dict[tuple[str, ...], tuple[int, list[Mapping[Any, Any]]]]:
    """By point its place in the sweep, from 1, and its runs."""
    points: dict[tuple[str, ...], tuple[int, list[Mapping[Any, Any]]]] = {}
    for run in selection.pulled.tuning_runs.to_dict("records"):
        points.setdefault(_key(run, fields), (len(points) + 1, []))[1].append(run)
    return points


def _state(runs: Sequence[Mapping[Any, Any]]) -> str:
    """`finished`; `stopped at epoch 3`; `2 finished, 1 diverged`; `not started`."""
    counts = Counter(NOT_STARTED if run["outcome"] == "new" else str(run["outcome"]) for run in runs)
    words = [word if len(counts) == 1 else f"{count} {word}" for word, count in counts.items()]
    stopped = [run["epoch"] for run in runs if run["outcome"] == "stopped" and format_value(run["epoch"]) != "-"]
    if not stopped:
        return ", ".join(words)
    first, last = int(min(stopped)), int(max(stopped))
    when = f" at epoch {first}" if first == last else f" at epochs {first} to {last}"
    return ", ".join(f"{word}{when}" if word.endswith("stopped") else word for word in words)


def readable(points: Sequence[Mapping[Any, Any]], names: Sequence[str]) -> list[list[str]]:
    """The parameters of points as text: numbers with three digits, and more where two points would look the same."""
    digits = dict.fromkeys(range(len(points)), LEAST_DIGITS)
    while True:
        texts = [[_text(point[name], digits[at]) for name in names] for at, point in enumerate(points)]
        places: dict[tuple[str, ...], list[int]] = {}
        for at, row in enumerate(texts):
            places.setdefault(tuple(row), []).append(at)
        alike = [at for same in places.values() if len(same) > 1 for at in same if digits[at] < MOST_DIGITS]
        if not alike:
            return texts
        for at in alike:
            digits[at] += 1


def _text(value: Any, digits: int) -> str:
    """A value with at least so many significant digits; a whole number, and the part before the point, with all."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value_text(value)
    if 10.0**digits <= abs(value) < 1e6:
        return f"{value:.0f}" if not value.is_integer() else value_text(value)
    return value_text(float(f"{value:.{digits}g}"))
