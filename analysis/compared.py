"""A comparison with published numbers as Markdown, CSV and HTML."""

from __future__ import annotations

import math
from html import escape
from typing import Any, Final

from analysis.compare import Compared
from analysis.formats import markdown
from trainer.registry import UserError, expected

FORMATS: Final = ("markdown", "csv", "html")


def render_compared(found: Compared, format_: str) -> str:
    """Cautions, verdicts, then every published cell beside ours. Raises `UserError` for an unknown format."""
    if format_ not in FORMATS:
        raise UserError(f"--format: {format_!r}; {expected(format_, FORMATS)}")
    if format_ == "csv":
        hidden = [f"{name} text" for name in found.metrics]
        return found.cells.drop(columns=hidden).to_csv(index=False).rstrip("\n")
    parts: list[tuple[str, list[list[str]]]] = [
        ("Claims", summary_rows(found)),
        ("Verdicts", claim_rows(found)),
        *((table, cell_rows(found, table)) for table in dict.fromkeys(found.cells["table"])),
    ]
    if format_ == "html":
        blocks = [f"<h3>{escape(title)}</h3>\n{_html(rows)}" for title, rows in parts]
        return "\n".join([f"<p>{escape(line)}</p>" for line in headline(found)] + blocks)
    blocks = [f"{title}\n\n{markdown(rows)}" for title, rows in parts]
    return "\n\n".join([*headline(found), *blocks])


def headline(found: Compared) -> list[str]:
    """What is compared, and what has to be known of it."""
    total = len(found.cells)
    return [
        f"{found.name} beside {found.published.name}: {found.with_runs} of {total} published cells have runs here; "
        f"published n = {found.published.seeds}, ours selected on {found.selected_on}; percent; "
        "z = difference / sqrt(s^2/n + s_p^2/n_p)",
        *(f"Caution: {text}" for text in found.published.cautions),
    ]


def summary_rows(found: Compared) -> list[list[str]]:
    """By claim how often it holds; the first row is the header."""
    rows = [["claim", "published", *found.metrics, "both"]]
    return rows + [[str(value) for value in row.values()] for row in found.summary()]


def claim_rows(found: Compared) -> list[list[str]]:
    """Every claim at every place of which something has run here; the first row is the header."""
    rows = [["claim", "where", "published", *found.metrics, "both"]]
    for claim in found.claims:
        if not claim.has_runs:
            continue
        said = [f"{claim.verdicts[name]} ({claim.details[name]})" for name in found.metrics]
        rows.append([claim.claim, claim.where, claim.published, *said, claim.overall])
    return rows


def cell_rows(found: Compared, table: str) -> list[list[str]]:
    """The published cells of one table beside ours; the first row is the header."""
    head = ["rho", "scheduler", "published"]
    for name in found.metrics:
        head += [name, "difference", "z"]
    rows = [head]
    for cell in found.cells[found.cells["table"] == table].to_dict("records"):
        row = [
            f"{cell['rho']:g}",
            cell["scheduler"],
            f"{cell['test_accuracy_mean']:.2f} +- {cell['test_accuracy_std']:.2f}",
        ]
        for name in found.metrics:
            row += [cell[f"{name} text"], _signed(cell[f"{name} difference"]), _signed(cell[f"{name} z"], 1)]
        rows.append(row)
    return rows


def _signed(value: float, digits: int = 2) -> str:
    return "-" if math.isnan(value) else f"{value:+.{digits}f}"


def _html(rows: list[list[str]]) -> str:
    def line(tag: str, row: list[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(text)).replace('+-', '±')}</{tag}>" for text in row) + "</tr>"

    return "\n".join(["<table>", line("th", rows[0]), *(line("td", row) for row in rows[1:]), "</table>"])
