"""A leaderboard as a table with what is said below it, and as the long table of all points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from polysweep.analysis.tables.importance import importance
from polysweep.analysis.tables.leaderboard import Leaderboard, leaderboard, readable
from polysweep.analysis.tables.mean_std import RowVerdict, caption, cell_entry, long_table
from polysweep.analysis.tables.selection import Selection, number
from polysweep.analysis.tables.statistics import mean_interval
from polysweep.analysis.tables.wording import shortened
from polysweep.analysis.tables.writers import Entry, Table
from polysweep.sweeps.planning.welch import LEVEL, Sample
from polysweep.trainer.history import is_accuracy

MOST: Final = 20
"""Points that a table shows unless all are asked for."""
LONGEST: Final = 40
"""Characters of a parameter's value in a table."""


def search_table(selection: Selection, most: int | None = MOST, *, intervals: bool = False) -> Table:
    """The first `most` points of the leaderboard, all for None; below them what can be said of them, and of parameters.

    With `intervals` each mean has Student's 95 % interval, for the best of as many points as are ranked.
    """
    board = leaderboard(selection)
    verdict = best_against_others(board)
    points = board.points.to_dict("records")[:most]
    unit = " (%)" if is_accuracy(selection.metric) else ""
    header = ["rank", f"{selection.metric}{unit}", "n", *board.parameters, "state", "trial"]
    marked = set() if verdict is None else set(verdict.marked)
    rows: list[list[str | Entry]] = []
    for row, texts in zip(points, readable(points, board.parameters), strict=True):
        ends = _interval(row, len(board.ranked), selection.metric) if intervals else None
        value = cell_entry(row, selection.metric, ends, (str(row["point"]),) in marked) if row["n"] else Entry("-")
        value = Entry(value.text, value.std, value.interval, "", value.is_number, value.is_marked)
        words = [*(shortened(text, LONGEST) for text in texts), row["state"], row["trial_ids"].partition(" ")[0]]
        rank = "-" if pd.isna(row["rank"]) else str(row["rank"])
        rows.append([rank, value, Entry(f"{row['n']}/{row['seeds']}"), *map(Entry, words)])
    ranked_by = f", ranked by {selection.by} ({'maximize' if board.is_maximal else 'minimize'})"
    name = selection.pulled.protocol.name
    return Table(header, rows, 1, name, {}, caption(selection) + ranked_by, notes_of(board, verdict, len(rows)))


def notes_of(board: Leaderboard, verdict: RowVerdict | None, shown: int) -> list[str]:
    """What is said below a leaderboard of which the first points are shown."""
    more = len(board.points) - shown
    lines = [f"... and {more} more: --all"] if more else []
    lost = board.ranked[["diverged", "stopped"]].sum()
    if lost.any():
        counts = " and ".join(f"{count} {word}" for word, count in lost.items() if count)
        lines.append(f"{counts} seeds are results: their points rank behind those with fewer of them")
    lines += _without_rank(board)
    if verdict is not None:
        lines.append(f"best against runner-up: {verdict.text([], board.selection.metric)}")
        if verdict.marked:
            lines.append(
                "bold: the best, and every point that cannot be told from it (Welch's t, 0.05, Bonferroni over all "
                "pairs of points)"
            )
    return [*lines, *importance(board).lines()]


def _without_rank(board: Leaderboard) -> list[str]:
    """How many points lack a result, and the best of them so far: nothing of them is hidden by the last place."""
    lacking = board.points[board.points["rank"].isna()]
    if not len(lacking):
        return []
    begun = lacking[lacking["n"] > 0].to_dict("records")
    metric = board.selection.metric
    best = ""
    if begun:
        best = f"; the best so far: {number(begun[0]['mean'], metric)} from {begun[0]['n']}/{begun[0]['seeds']}"
    return [f"without rank, because a seed has no result yet: {len(lacking)} of {len(board.points)} points{best}"]


def best_against_others(board: Leaderboard) -> RowVerdict | None:
    """The first point of a search against the second, and which cannot be told from the first; None without two.

    The p values count as often as there are pairs of points: whichever point is the best, the chance that one that is
    as good is told from it is at most 0.05. Nothing is marked if no difference can be tested, as with one seed.
    """
    selection, ranked = board.selection, board.ranked.to_dict("records")
    if len(ranked) < 2 or not ranked[0]["n"] or selection.is_maximal is None or selection.pulled.protocol.tuned:
        return None
    cells = [{**row, "undecided": ""} for row in ranked]
    pairs = len(ranked) * (len(ranked) - 1) / 2
    gaps = [selection.difference([cells[0]], [cell]) for cell in cells[1:]]
    p_values = [math.nan if math.isnan(gap.p) else min(1.0, gap.p * pairs) for gap in gaps]
    told = [p < LEVEL for p in p_values]
    is_tested = not all(map(math.isnan, p_values))
    marked = [row for row, is_told in zip(ranked, [False, *told], strict=True) if row["n"] and not is_told]
    keys = tuple((str(row["point"]),) for row in marked) if is_tested else ()
    return RowVerdict((), "rank 1", f"rank {ranked[1]['rank']}", gaps[0], p_values[0], keys)


def _interval(row: Mapping[Any, Any], ranked: int, metric: str) -> tuple[float, float]:
    """Student's interval of a point's mean, for the best of so many; of an accuracy within 0 to 1."""
    low, high = mean_interval(Sample(row["mean"], row["std"], row["n"]), max(ranked, 1))
    return (max(low, 0.0), min(high, 1.0)) if is_accuracy(metric) else (low, high)


def points_table(selection: Selection) -> pd.DataFrame:
    """All points of a search, the best first: rank, point, state and trials, then the columns of `long_table`."""
    points = leaderboard(selection).points
    order = {selection.cell_key(cell): at for at, cell in enumerate(selection.cells.to_dict("records"))}
    places = [order[selection.cell_key(point)] for point in points.to_dict("records")]
    numbers = long_table(selection).iloc[places].reset_index(drop=True)
    return pd.concat([points[["rank", "point", "state", "trial_ids"]], numbers], axis=1)
