"""Tables as Markdown, LaTeX (booktabs), CSV and HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, Final

import pandas as pd

from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.mean_std import (
    caption,
    cell_text,
    long_table,
    mean_std_table,
    number,
    row_verdicts,
    with_interval,
)
from polysweep.analysis.tables.selection import CAPPED, Selection, shown
from polysweep.analysis.tables.spreadsheet import to_csv
from polysweep.analysis.tables.wording import settings_in_words
from polysweep.trainer.errors import UserError, expected
from polysweep.trainer.text import one_line

FORMATS: Final = ("markdown", "latex", "csv", "html")
Text = Callable[[Mapping[Any, Any]], str]
NOTED: Final = {
    "edge": "at the edge of its grid, so a better value may lie outside",
    "ties": "ties, decided by the order in the spec",
    "undecided": "undecided",
    "stalled": "stalled seeds, which gamma = 0 held in place to the end",
    "cap_share": "mostly at the cap, so nearly the constant step size gamma_b",
}
"""By column of the cells what is said of those in which it is not empty."""
LATEX_NAMES: Final = {"rho": r"$\rho$", "gamma_b": r"$\gamma_b$", "lr": r"$\gamma$"}
_LATEX: Final = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}  # other signs in TeX's old font encoding
    | {c: f"\\{c}" for c in "&%#_${}"}
)


def render(selection: Selection, format_: str, layout: Layout | None = None, *, intervals: bool = False) -> str:
    """The tables of a selection as text, with `intervals` of the means within the cells (the CSV always has them).

    Raises `UserError` for an unknown format.
    """
    if format_ not in FORMATS:
        raise UserError(f"--format: {format_!r}; {expected(format_, FORMATS)}")
    if format_ == "csv":
        return to_csv(long_table(selection)).rstrip("\n")
    layout = layout or Layout.of(selection)
    writer = {"markdown": _markdown, "latex": _latex, "html": _html}[format_]
    text = partial(with_interval, selection) if intervals else partial(cell_text, metric=selection.metric)
    return "\n\n".join(writer(selection, values, cells, layout, text) for values, cells in subtables(selection, layout))


def title_of(values: Mapping[str, Any]) -> str:
    """`optimizer = usam, gamma_b = 1.0`."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def notes(selection: Selection, cells: pd.DataFrame, layout: Layout) -> list[str]:
    """What belongs below a table: what was chosen, from how many runs, at which edge; best against runner-up."""
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
            lines.append(f"{what}: {_choices(noted.assign(cap_share=shares), column, layout)}")
    return lines + verdict_lines(selection, cells, layout)


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
        where = " ".join(shown(cell[name]) for name in layout.cols)
        row = " ".join(shown(cell[name]) for name in layout.rows)
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


def _entries(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a table, its index as the first columns."""
    head = [str(name) for name in table.index.names if name is not None]
    columns = [" ".join(column) if isinstance(column, tuple) else str(column) for column in table.columns]
    keys = [list(key) if isinstance(key, tuple) else [str(key)] * len(head) for key in table.index]
    return [*head, *columns], [[*key, *row] for key, row in zip(keys, table.to_numpy().tolist(), strict=True)]


def _table(selection: Selection, cells: pd.DataFrame, layout: Layout, show: Any) -> pd.DataFrame:
    return mean_std_table(selection, cells, rows=layout.rows, cols=layout.cols, by=layout.by, show=show)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text as a table, the first one its header. No text in it ends a cell or a row."""
    rows = [[one_line(text).replace("\\", r"\\").replace("|", r"\|") for text in row] for row in rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["| " + " | ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _markdown(
    selection: Selection, values: Mapping[str, Any], cells: pd.DataFrame, layout: Layout, text_of: Text
) -> str:
    def show(cell: Mapping[Any, Any], best: bool) -> str:
        text = text_of(cell)
        if not best:
            return text
        value, space, note = text.partition(" (")
        return f"**{value}**{space}{note}"

    head, rows = _entries(_table(selection, cells, layout, show))
    title = f" ({title_of(values)})" if values else ""
    below = notes(selection, cells, layout)
    name = selection.pulled.protocol.name
    about = one_line(f"{name}{title}: {caption(selection)}")
    return "\n".join([about, "", markdown([head, *rows]), *([""] if below else []), *map(one_line, below)])


def _latex(selection: Selection, values: Mapping[str, Any], cells: pd.DataFrame, layout: Layout, text_of: Text) -> str:
    def show(cell: Mapping[Any, Any], best: bool) -> str:
        if pd.isna(cell["mean"]):
            return latex_escaped(text_of(cell))
        value, _, note = text_of(cell).partition(" (")
        _, bracket, interval = value.partition(" [")
        text = number(cell["mean"], selection.metric)
        if not pd.isna(cell["std"]):
            text = f"{text}_{{\\pm {number(cell['std'], selection.metric)}}}"
        text = f"\\mathbf{{{text}}}" if best else text
        return f"${text}$" + bracket + interval + (f" ({latex_escaped(note)}" if note else "")

    head, rows = _entries(_table(selection, cells, layout, show))
    fields = len(layout.rows)
    header = [LATEX_NAMES.get(name) or latex_escaped(name.replace("_", " ")) for name in head[:fields]]
    header += [latex_escaped(name) for name in head[fields:]]
    title = f" ({settings_in_words(values)})" if values else ""
    text = _math(latex_escaped(f"{selection.pulled.protocol.name}{title}: {caption(selection)}"))
    body = [[*map(latex_escaped, row[:fields]), *row[fields:]] for row in rows]
    lines = [
        r"\begin{table}",
        rf"  \caption{{{text}}}",
        r"  \centering",
        rf"  \begin{{tabular}}{{{'l' * fields}{'c' * (len(head) - fields)}}}",
        r"    \toprule",
        "    " + " & ".join(header) + r" \\",
        r"    \midrule",
        *("    " + " & ".join(row) + r" \\" for row in body),
        r"    \bottomrule",
        r"  \end{tabular}",
    ]
    below = [rf"  \par {_math(latex_escaped(line.strip()))}" for line in notes(selection, cells, layout)]
    lines += [r"  \begin{flushleft}\footnotesize", *below, r"  \end{flushleft}"] if below else []
    return "\n".join([*lines, r"\end{table}"])


def _math(text: str) -> str:
    """Escaped text with its signs as LaTeX sets them."""
    return text.replace("+-", r"$\pm$")


def latex_escaped(text: str) -> str:
    """Text that LaTeX prints as it is, in one line: an empty line would end a table's cell."""
    return one_line(text).translate(_LATEX)


def _html(selection: Selection, values: Mapping[str, Any], cells: pd.DataFrame, layout: Layout, text_of: Text) -> str:
    def show(cell: Mapping[Any, Any], best: bool) -> str:
        text = escape(text_of(cell).replace("+-", "±"))
        return f"<b>{text}</b>" if best else text

    head, rows = _entries(_table(selection, cells, layout, show))
    fields = len(layout.rows)
    title = f" ({title_of(values)})" if values else ""
    about = escape(f"{selection.pulled.protocol.name}{title}: {caption(selection)}".replace("+-", "±"))
    body = [
        "".join(f'<th scope="row">{escape(text)}</th>' for text in row[:fields])
        + "".join(f"<td>{text}</td>" for text in row[fields:])
        for row in rows
    ]
    return "\n".join(
        [
            f"<table><caption>{about}</caption>",
            f"<thead><tr>{''.join(f'<th scope=col>{escape(text)}</th>' for text in head)}</tr></thead>",
            "<tbody>",
            *(f"<tr>{row}</tr>" for row in body),
            "</tbody></table>",
            *(f"<p>{escape(line)}</p>" for line in notes(selection, cells, layout)),
        ]
    )


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
