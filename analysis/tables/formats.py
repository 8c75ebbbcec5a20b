"""The tables of a selection as Markdown, LaTeX, CSV and HTML, with what is said below each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.leaderboard_table import MOST, points_table, search_table
from polysweep.analysis.tables.mean_std import caption, cell_entry, long_table, mean_std_table, row_verdicts
from polysweep.analysis.tables.replication import decision_rows, replication_text
from polysweep.analysis.tables.selection import CAPPED, Selection, format_value
from polysweep.analysis.tables.spreadsheet import to_csv
from polysweep.analysis.tables.writers import Entry, Table, html, latex, markdown
from polysweep.trainer.errors import UserError, expected

WRITERS: Final[Mapping[str, Callable[[Table], str]]] = {"markdown": markdown, "latex": latex, "html": html}
FORMATS: Final = ("markdown", "latex", "csv", "html")
NOTED: Final = {
    "edge": "at the edge of its grid, so a better value may lie outside",
    "ties": "ties, decided by the order in the spec",
    "undecided": "undecided",
    "stalled": "stalled seeds, which gamma = 0 held in place to the end",
    "cap_share": "mostly at the cap, so nearly the constant step size gamma_b",
}
"""By column of the cells what is said of those in which it is not empty."""
OTHER_CAPS: Final = "mostly at the cap, so nearly the step size that the cap alone gives"
"""If it is not the cap of `polyak`: that of `momo` is lr, and that of `decsps` falls."""


def render(
    selection: Selection,
    format_: str,
    layout: Layout | None = None,
    *,
    intervals: bool = False,
    all_points: bool = False,
) -> str:
    """The tables of a selection as text, with `intervals` of the means within the cells (the CSV always has them).

    Of a search without tuned parameters, unless a layout is asked for, the leaderboard: its first 20 points, or
    `all_points`; the CSV has all.

    Raises `UserError` for an unknown format.
    """
    if format_ not in FORMATS:
        raise UserError(f"--format: {format_!r}; {expected(format_, FORMATS)}")
    is_ranked = layout is None and selection.pulled.protocol.is_search
    if format_ == "csv":
        return to_csv(points_table(selection) if is_ranked else long_table(selection)).rstrip("\n")
    if is_ranked:
        return WRITERS[format_](search_table(selection, None if all_points else MOST, intervals=intervals))
    layout = layout or Layout.of_tables(selection)
    tables = [*tables_of(selection, layout, intervals=intervals), *decision_table(selection)]
    return "\n\n".join(WRITERS[format_](table) for table in tables)


def decision_table(selection: Selection) -> list[Table]:
    """What a replication has decided, as a table; none without one."""
    about = replication_text(selection.pulled)
    if not about:
        return []
    header, *rows = decision_rows(selection.pulled)
    name = f"{selection.pulled.protocol.name}: decided by replication"
    return [Table(header, [list(row) for row in rows], name=name, caption=about)]


def tables_of(selection: Selection, layout: Layout, *, intervals: bool = False, verdicts: bool = True) -> list[Table]:
    """One table per choice of the fields `by` of the layout, its notes with the verdicts or without."""

    def entry(cell: Mapping[Any, Any], is_marked: bool) -> Entry:
        return cell_entry(cell, selection.metric, selection.interval(cell) if intervals else None, is_marked)

    tables = []
    for values, cells in subtables(selection, layout):
        notes = choice_notes(selection, cells, layout)
        if verdicts:
            notes += verdict_lines(selection, cells, layout)
        entries = mean_std_table(selection, cells, rows=layout.rows, cols=layout.cols, by=layout.by, show=entry)
        header, rows = _header_and_rows(entries)
        name = selection.pulled.protocol.name
        tables.append(Table(header, rows, len(layout.rows), name, values, caption(selection), notes))
    return tables


def choice_notes(selection: Selection, cells: pd.DataFrame, layout: Layout) -> list[str]:
    """What was chosen in the cells of a table, from how many runs, and at which edge."""
    lines = []
    chosen = _choices(cells, "selected", layout)
    if chosen:
        lines.append(f"selected: {chosen}")
    if selection.pulled.protocol.tuned:
        lines.append(f"chosen from, runs per cell: {_choices(cells, 'budget', layout)}")
    for column, what in NOTED.items():
        noted = cells[cells[column] > CAPPED if column == "cap_share" else ~cells[column].isin(["", 0])]
        if len(noted):
            shares = noted["cap_share"].map("{:.0%} of the steps".format)
            is_other = column == "cap_share" and set(noted["scheduler"]) != {"polyak"}
            lines.append(
                f"{OTHER_CAPS if is_other else what}: {_choices(noted.assign(cap_share=shares), column, layout)}"
            )
    return lines


def verdict_lines(selection: Selection, cells: pd.DataFrame, layout: Layout) -> list[str]:
    """What the marks mean, and of each row the best against the runner-up; none if no row has two cells."""
    verdicts = row_verdicts(selection, cells, layout)
    if not verdicts:
        return []
    return [
        "bold: the best of its row, and every entry that cannot be told from it (Welch's t, Holm over all pairs in the "
        "rows of the table, 0.05); intervals are 95 %, of one difference each",
        "best against runner-up:",
        *(f"  {one.text(layout.rows, selection.metric)}" for one in verdicts),
    ]


def _choices(cells: pd.DataFrame, column: str, layout: Layout) -> str:
    """`constant lr=0.1; cosine lr=0.1 lr_min=0.01 (rho 0.1, 0.2), ...`: what a column says, per column of the table."""
    by_column: dict[str, dict[str, list[str]]] = {}
    for cell in cells.to_dict("records"):
        if cell[column] == "":
            continue
        where = " ".join(format_value(cell[name]) for name in layout.cols)
        row = " ".join(format_value(cell[name]) for name in layout.rows)
        by_column.setdefault(where, {}).setdefault(str(cell[column]), []).append(row)
    parts = []
    for where, choices in by_column.items():
        several = len(choices) > 1
        listed = [
            f"{choice} ({' '.join(layout.rows)} {', '.join(rows)})" if several else choice
            for choice, rows in choices.items()
        ]
        parts.append(f"{where} {', '.join(listed)}".strip())
    return "; ".join(parts)


def _header_and_rows(entries: pd.DataFrame) -> tuple[list[str], list[list[str | Entry]]]:
    """The header and the rows of a frame of entries, its index as the first columns; a place without a cell is `-`."""
    fields = [str(name) for name in entries.index.names if name is not None]
    columns = [" ".join(column) if isinstance(column, tuple) else str(column) for column in entries.columns]
    rows: list[list[str | Entry]] = []
    for key, row in zip(entries.index, entries.to_numpy().tolist(), strict=True):
        names = list(key) if isinstance(key, tuple) else [str(key)] * len(fields)
        rows.append([*names, *(one if isinstance(one, Entry) else Entry(one) for one in row)])
    return [*fields, *columns], rows


def edge_warnings(selection: Selection) -> Sequence[str]:
    """Per tuned parameter, in how many cells its chosen value is the smallest or largest that was tried."""
    if not len(selection.cells):
        return []
    edges = selection.cells["edge"].str.split().explode().dropna()
    edges = edges[edges != ""]
    tried = len(selection.cells)
    return [
        f"{name}: in {count} of {tried} cells the chosen value is at the edge of its grid; a better one may lie outside"
        for name, count in edges.value_counts().items()
    ]
