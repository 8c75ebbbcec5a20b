"""A comparison with published numbers as Markdown, CSV and HTML."""

from __future__ import annotations

import math
from html import escape
from typing import Final

from polysweep.analysis.published.comparison import Compared
from polysweep.analysis.tables.spreadsheet import to_csv
from polysweep.analysis.tables.statistics import NO_RUNS
from polysweep.analysis.tables.writers import Table, html_rows, markdown
from polysweep.trainer.errors import UserError, expected

FORMATS: Final = ("markdown", "csv", "html")


def render_compared(compared: Compared, format_: str) -> str:
    """Cautions, verdicts, then every published cell beside ours. Raises `UserError` for an unknown format."""
    if format_ not in FORMATS:
        raise UserError(f"--format: {format_!r}; {expected(format_, FORMATS)}")
    if format_ == "csv":
        hidden = [f"{name} text" for name in compared.readings]
        return to_csv(compared.cells.drop(columns=hidden)).rstrip("\n")
    rows_of = {
        "Claims": summary_rows(compared),
        "Verdicts": claim_rows(compared),
        **{table: cell_rows(compared, table) for table in dict.fromkeys(compared.cells["table"])},
    }
    tables = {title: Table(header, rows) for title, (header, *rows) in rows_of.items()}
    if format_ == "html":
        blocks = [f"<h3>{escape(title)}</h3>\n{html_rows(table)}" for title, table in tables.items()]
        return "\n".join([f"<p>{escape(line)}</p>" for line in headline(compared)] + blocks)
    blocks = [f"{title}\n\n{markdown(table)}" for title, table in tables.items()]
    return "\n\n".join([*headline(compared), *blocks])


def headline(compared: Compared) -> list[str]:
    """What is compared, and what has to be known of it."""
    published = compared.published
    return [
        f"{compared.headline()}; published n = {published.seeds}, ours selected on {compared.selected_on}; percent; "
        "differences are ours - published with their 95 % interval (Welch's t)",
        *(f"Caution: {text}" for text in published.cautions),
        "A verdict is at the level 0.05 for all rows of its claim together (Holm); an interval is of one row alone.",
    ]


def summary_rows(compared: Compared) -> list[list[str]]:
    """By claim how often each verdict falls; the first row is the header."""
    rows = [["claim", "dataset", "reading", "in print", "our runs"]]
    return rows + [[str(value) for value in row.values()] for row in compared.summary()]


def claim_rows(compared: Compared) -> list[list[str]]:
    """Every claim at every place of which something has run here; the first row is the header."""
    rows = [["claim", "where", "reading", "in print", "verdict", "difference"]]
    return rows + [
        [one.claim, one.where, one.reading, one.published, one.verdict, one.detail]
        for one in compared.claims
        if one.verdict != NO_RUNS
    ]


def cell_rows(compared: Compared, table: str) -> list[list[str]]:
    """The published cells of one table beside ours; the first row is the header."""
    cells = compared.cells[compared.cells["table"] == table]
    names = [name for name in compared.readings if (cells[f"{name} text"] != "-").any()]
    rows = [["rho", "scheduler", "published", *(text for name in names for text in (name, "difference"))]]
    for cell in cells.to_dict("records"):
        row = [
            f"{cell['rho']:g}",
            cell["scheduler"],
            f"{cell['test_accuracy_mean']:.2f} +- {cell['test_accuracy_std']:.2f}",
        ]
        for name in names:
            ends = [cell[f"{name} {end}"] for end in ("difference", "low", "high")]
            row += [cell[f"{name} text"], _with_interval(*ends)]
        rows.append(row)
    return rows


def _with_interval(difference: float, low: float, high: float) -> str:
    if math.isnan(difference):
        return "-"
    return f"{difference:+.2f}" + ("" if math.isnan(low) else f" [{low:+.2f}, {high:+.2f}]")
