"""How the commands print: text without control characters, and tables of cells with one line for each."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainer.text import one_line, printable, shortened

VALUE_WIDTHS: Final = (40, 24, 16, 12, 8)
"""Characters that a value may take, tried one after the other until a cell's label fits its column."""
LEAST_LABEL: Final = 16


def say(text: object, file: TextIO | None = None) -> None:
    """Print text that may come from a file or a user: nothing in it steers a terminal."""
    print(printable(str(text)), file=file or sys.stdout, flush=True)


class PrintableFormatter(logging.Formatter):
    """Log lines without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return printable(super().format(record))


def warn(text: object) -> None:
    """`warning: ...` on stderr, in one line."""
    say(f"warning: {one_line(str(text))}", sys.stderr)


def print_cells(
    title: str,
    columns: Sequence[str],
    rows: Sequence[tuple[Mapping[str, Any], Sequence[str]]],
    total: Sequence[str],
    console: Console,
) -> None:
    """A table with a line for each cell and one for all; on a terminal long values are cut in the middle."""
    counted = [entries for _, entries in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *counted, total, strict=True)]
    room = console.width - sum(width + 3 for width in widths) - 4 if console.is_terminal else sys.maxsize
    labels = [label(cell, max(room, LEAST_LABEL)) for cell, _ in rows]
    table = Table(title=Text(title) if title else None, title_justify="left")
    table.add_column("cell", no_wrap=True)
    for column in columns:
        table.add_column(Text(column), justify="right", no_wrap=True)
    for text, entries in zip(labels, counted, strict=True):
        table.add_row(Text(text), *map(Text, entries))
    table.add_section()
    table.add_row("all", *map(Text, total))
    whole = max([cell_len(title), *(cell_len(text) for text in labels), 4]) + sum(width + 3 for width in widths) + 4
    if not console.is_terminal:  # a file has no width
        console = Console(file=console.file, width=whole)
    console.print(table)


def label(cell: Mapping[str, Any], room: int = sys.maxsize) -> str:
    """A cell in words, in at most `room` characters: the longest values are cut first, in the middle."""
    values = {one_line(str(key)): one_line(str(value)) for key, value in cell.items()}
    text = _label(values, sys.maxsize)
    for width in VALUE_WIDTHS:
        if len(text) <= room:
            break
        text = _label(values, width)
    return shortened(text, room)


def _label(values: Mapping[str, str], width: int) -> str:
    return " ".join(f"{key}={shortened(value, width)}" for key, value in values.items()) or "(all parameters fixed)"
