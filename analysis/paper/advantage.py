"""Whether Polyak's step sizes are better than those that are tuned, row by row and measure by measure. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.selection import Selection, format_value, number
from polysweep.analysis.tables.statistics import FAILS, HOLDS, NO_RUNS, NOT_SHOWN, UNDECIDED, holm
from polysweep.analysis.tables.writers import Entry, Table
from polysweep.sweeps.planning.welch import LEVEL, Difference, p_text, untested

POLYAK: Final = "polyak"
TUNED: Final = ("constant", "cosine")
"""The step sizes that it is compared with."""


@dataclass(frozen=True)
class Row:
    """One place: the measure, all that the cells share besides the step size, and by how much Polyak's is better."""

    metric: str
    place: Mapping[str, Any]
    difference: Difference
    means: Mapping[str, float]  # by scheduler
    verdict: str = ""
    p: float = math.nan  # Holm's


def advantages(pulled: RunSet, metrics: Sequence[str]) -> list[Row]:
    """Of every row of a sweep's tables, whether Polyak's step size is better than the best of `TUNED` by each measure.

    It holds if Polyak's mean is shown to be better than that of each of the others, and fails if one of the others is
    shown to be better (`Selection.over_all`: Welch's t, the choice among candidates accounted for). p is Holm's
    over all rows and measures, so that the chance that any of these verdicts is false is at most 5 %.
    """
    rows = [row for metric in metrics for row in _rows(select(pulled, metric=metric))]
    adjusted = holm([row.difference.p for row in rows])
    return [_judged(row, p) for row, p in zip(rows, adjusted, strict=True)]


def _rows(selection: Selection) -> list[Row]:
    fields = [name for name in ("rho", *selection.varying) if name != "scheduler"]
    groups: dict[tuple[str, ...], dict[str, Mapping[Any, Any]]] = {}
    for cell in selection.cells.to_dict("records"):
        if cell["scheduler"] in (POLYAK, *TUNED):
            key = tuple(format_value(cell[name]) for name in fields)
            groups.setdefault(key, {})[cell["scheduler"]] = cell
    rows = []
    for key, cells in groups.items():
        others = [cells[name] for name in TUNED if name in cells]
        if POLYAK not in cells or not others:
            continue
        place = {name: value for name, value in zip(fields, key, strict=True) if value != "-"}
        has_runs = any(cell["n"] or cell["lost"] or cell["failed"] for cell in cells.values())
        gap = selection.over_all(cells[POLYAK], others) if has_runs else untested(NO_RUNS)
        rows.append(Row(selection.metric, place, gap, {name: float(cell["mean"]) for name, cell in cells.items()}))
    return rows


def _judged(row: Row, p: float) -> Row:
    gap = row.difference
    if gap.reason in (UNDECIDED, NO_RUNS):
        verdict = gap.reason
    else:
        verdict = NOT_SHOWN if not p < LEVEL else HOLDS if gap.is_above else FAILS
    return Row(row.metric, row.place, gap, row.means, verdict, p)


def tally(rows: Sequence[Row]) -> str:
    """`holds in 3 of 4 rows, not shown in 1`."""
    counts = Counter(row.verdict for row in rows)
    listed = [
        f"{verdict} in {counts[verdict]}"
        for verdict in (HOLDS, FAILS, NOT_SHOWN, UNDECIDED, NO_RUNS)
        if counts[verdict]
    ]
    return f"of {len(rows)} rows: {', '.join(listed) or 'none'}"


def advantage_table(rows: Sequence[Row], title: str) -> Table:
    """A line per row: the means of each step size, the difference with its interval, p and verdict."""
    fields = list(dict.fromkeys(name for row in rows for name in row.place))
    schedulers = [name for name in (POLYAK, *TUNED) if any(name in row.means for row in rows)]
    lines: list[list[str | Entry]] = []
    for row in rows:
        gap = row.difference
        means = [
            "-" if math.isnan(row.means.get(s, math.nan)) else number(row.means[s], row.metric) for s in schedulers
        ]
        interval = "" if math.isnan(gap.low) else f" [{number(gap.low, row.metric)}, {number(gap.high, row.metric)}]"
        difference = "-" if math.isnan(gap.estimate) else number(gap.estimate, row.metric) + interval
        p = gap.reason or (p_text(row.p).removeprefix("p ").removeprefix("= ") if not math.isnan(row.p) else "-")
        verdict = Entry(row.verdict, is_marked=row.verdict in (HOLDS, FAILS))
        lines.append(
            [
                row.metric,
                *(str(row.place.get(name, "-")) for name in fields),
                *means,
                difference,
                p,
                str(gap.n),
                verdict,
            ]
        )
    header = ["measure", *fields, *schedulers, "better by", "p", "n", "verdict"]
    about = "better by: how much Polyak's mean is better than that of the best other; its 95 % interval is of one row"
    notes = [f"{about}, p is Holm's over all rows of the table."]
    return Table(header, lines, 1 + len(fields), title, {}, tally(rows), notes)
