"""How the commands print: text without control characters, and tables of cells with one line for each."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polysweep.trainer.text import one_line, printable, shortened

WIDTHS: Final = ((40, 40), (40, 24), (24, 16), (16, 12), (12, 8), (8, 8), (6, 8), (4, 8), (3, 6), (2, 5))
"""Characters that a field's name and its value may take, tried one after the other until a label fits its column."""
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


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, on a terminal only; what it gives is called with how many are done, of how many."""
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


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
    """A cell in words, in at most `room` characters: the longest names and values are cut first, in the middle."""
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in cell.items()}
    values = [(one_line(str(key)), one_line(str(value))) for key, value in plain.items()]
    text = _label(values, sys.maxsize, sys.maxsize)
    for widths in WIDTHS:
        if len(text) <= room:
            break
        text = _label(values, *widths)
    return shortened(text, room)


def _label(values: Sequence[tuple[str, str]], name_width: int, value_width: int) -> str:
    parts = [f"{shortened(name, name_width)}={shortened(value, value_width)}" for name, value in values]
    return " ".join(parts) or "(all parameters fixed)"
