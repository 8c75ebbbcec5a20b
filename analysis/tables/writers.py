"""One table, and its writers: Markdown, LaTeX (booktabs) and HTML. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Final

from polysweep.analysis.tables.wording import settings_in_words
from polysweep.trainer.text import one_line

LATEX_NAMES: Final = {"rho": r"$\rho$", "gamma_b": r"$\gamma_b$", "lr": r"$\gamma$"}
_LATEX: Final = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}  # other signs in TeX's old font encoding
    | {c: f"\\{c}" for c in "&%#_${}"}
)


@dataclass(frozen=True)
class Entry:
    """What stands at one place of a table: a number with its std, interval and note, or words."""

    text: str
    std: str = ""
    interval: str = ""  # `[97.27, 99.35]`
    note: str = ""  # `(2/3, 1 diverged)`
    is_number: bool = False
    is_marked: bool = False

    @property
    def value(self) -> str:
        """All but the note."""
        return " ".join(part for part in (self.text, self.std and f"+- {self.std}", self.interval) if part)

    def __str__(self) -> str:
        return f"{self.value} {self.note}" if self.note else self.value


@dataclass(frozen=True)
class Table:
    """A header, rows, and what stands above and below them."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | Entry]]
    fields: int = 0  # columns at the left that name a row
    name: str = ""  # of the sweep
    values: Mapping[str, Any] = field(default_factory=dict)  # what tells this table from the others of its sweep
    caption: str = ""
    notes: Sequence[str] = ()


def title_of(values: Mapping[str, Any]) -> str:
    """`optimizer = usam, gamma_b = 1.0`."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _above(table: Table, title: str) -> str:
    return f"{table.name}{f' ({title})' if title else ''}: {table.caption}"


def markdown(table: Table) -> str:
    """The table with its caption and notes. No text in it ends a cell or a row."""
    above = [one_line(_above(table, title_of(table.values))), ""] if table.caption else []
    below = ["", *map(one_line, table.notes)] if table.notes else []
    rows = [[_markdown_entry(one) for one in row] for row in [table.header, *table.rows]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([*above, *lines, *below])


def markdown_page(table: Table) -> str:
    """The same for a page that sets Markdown as text: the notes are a list there, or they would run together."""
    notes = [f"{' ' * (len(note) - len(note.lstrip()))}- {one_line(note.lstrip())}" for note in table.notes]
    return "\n".join([markdown(replace(table, notes=())), "", *notes]).rstrip()


def _markdown_entry(entry: str | Entry) -> str:
    text = str(entry)
    if isinstance(entry, Entry) and entry.is_marked:
        text = f"**{entry.value}** {entry.note}".rstrip()
    return one_line(text).replace("\\", r"\\").replace("|", r"\|")


def latex(table: Table) -> str:
    """The table as a float with booktabs' rules, its notes below it."""
    fields = table.fields
    header = [LATEX_NAMES.get(name) or latex_escaped(name.replace("_", " ")) for name in table.header[:fields]]
    header += [latex_escaped(name) for name in table.header[fields:]]
    notes = [rf"  \par {_latex_text(line.strip())}" for line in table.notes]
    return "\n".join(
        [
            r"\begin{table}",
            rf"  \caption{{{_latex_text(_above(table, settings_in_words(table.values)))}}}",
            r"  \centering",
            rf"  \begin{{tabular}}{{{'l' * fields}{'c' * (len(header) - fields)}}}",
            r"    \toprule",
            "    " + " & ".join(header) + r" \\",
            r"    \midrule",
            *("    " + " & ".join(map(_latex_entry, row)) + r" \\" for row in table.rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            *([r"  \begin{flushleft}\footnotesize", *notes, r"  \end{flushleft}"] if notes else []),
            r"\end{table}",
        ]
    )


def _latex_entry(entry: str | Entry) -> str:
    if isinstance(entry, str) or not entry.is_number:
        return latex_escaped(str(entry))
    formula = f"{entry.text}_{{\\pm {entry.std}}}" if entry.std else entry.text
    formula = f"\\mathbf{{{formula}}}" if entry.is_marked else formula
    return " ".join(part for part in (f"${formula}$", entry.interval, latex_escaped(entry.note)) if part)


def _latex_text(text: str) -> str:
    """Escaped text with its signs as LaTeX sets them."""
    return latex_escaped(text).replace("+-", r"$\pm$")


def latex_escaped(text: str) -> str:
    """Text that LaTeX prints as it is, in one line: an empty line would end a table's cell."""
    return one_line(text).translate(_LATEX)


def html(table: Table) -> str:
    """The table with its caption, each note a paragraph below it."""
    caption = _html_text(_above(table, title_of(table.values)))
    return "\n".join(
        [
            f"<table><caption>{caption}</caption>",
            f"<thead><tr>{''.join(f'<th scope=col>{escape(text)}</th>' for text in table.header)}</tr></thead>",
            "<tbody>",
            *(f"<tr>{''.join(map(_html_entry, row))}</tr>" for row in table.rows),
            "</tbody></table>",
            *(f"<p>{escape(line)}</p>" for line in table.notes),
        ]
    )


def _html_entry(entry: str | Entry) -> str:
    if isinstance(entry, str):
        return f'<th scope="row">{escape(entry)}</th>'
    text = _html_text(str(entry))
    return f"<td><b>{text}</b></td>" if entry.is_marked else f"<td>{text}</td>"


def html_rows(table: Table) -> str:
    """The table without caption, notes and names of rows."""

    def row(tag: str, entries: Sequence[str | Entry]) -> str:
        return "<tr>" + "".join(f"<{tag}>{_html_text(str(one))}</{tag}>" for one in entries) + "</tr>"

    return "\n".join(["<table>", row("th", table.header), *(row("td", one) for one in table.rows), "</table>"])


def _html_text(text: str) -> str:
    return escape(text.replace("+-", "±"))
