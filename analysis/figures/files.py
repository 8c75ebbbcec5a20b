"""Files of figures: names that every file system takes, the formats, and the data beside each."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from polysweep.analysis.data.frames import names_of
from polysweep.analysis.figures.styles import styled
from polysweep.analysis.tables.spreadsheet import to_csv
from polysweep.analysis.tables.wording import value_text
from polysweep.trainer.errors import UserError, expected

KINDS: Final = ("png", "svg", "pdf")
LONGEST: Final = 100
"""Characters of a file's name without its ending."""


@dataclass(frozen=True)
class NamedFigure:
    """A figure, the name of its file, the frame that it was drawn from, and what it shows, in words."""

    name: str
    figure: Figure
    data: pd.DataFrame
    caption: str


def figure_name(kind: str, values: Mapping[str, Any]) -> str:
    """`robustness-optimizer-usam`: of letters, digits and `._-` alone.

    Where a value has other characters, or the name would be too long, the first ten digits of its hash end it, so that
    two values give two names.
    """
    whole = "-".join([kind, *(f"{name}-{value_text(value)}" for name, value in values.items())])
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", whole)
    if safe == whole and len(safe) <= LONGEST:
        return safe
    digits = hashlib.sha256(whole.encode("utf-8", "backslashreplace")).hexdigest()[:10]
    return f"{safe[: LONGEST - 11].rstrip('._-')}-{digits}"


def require_kinds(kinds: str | Sequence[str]) -> tuple[str, ...]:
    """The kinds of file that are asked for.

    Raises `UserError` for an unknown one, and for none.
    """
    asked = names_of(kinds)
    for kind in asked:
        if kind not in KINDS:
            raise UserError(f"--kinds: {kind!r}; {expected(kind, KINDS)}")
    if not asked:
        raise UserError(f"--kinds: none is given; {expected('', KINDS)}")
    return asked


def write(all_figures: Iterable[NamedFigure], folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Write figures in every format of `kinds`, and their data as CSV; returns the files, never two of one name.

    Names that differ in upper and lower case alone are one file to some systems: the second gets a number.

    Raises `UserError` if the folder cannot be written.
    """
    paths: list[Path] = []
    used: set[str] = set()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in all_figures:
            name, number = one.name, 1
            while name.casefold() in used:
                number += 1
                name = f"{one.name}-{number}"
            used.add(name.casefold())
            for kind in kinds:
                paths.append(folder / f"{name}.{kind}")
                paths[-1].write_bytes(image(one.figure, kind))
            paths.append(folder / f"{name}.csv")
            paths[-1].write_text(to_csv(one.data), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out: {folder} cannot be written: {error}") from None
    return paths


def image(figure: Figure, kind: str) -> bytes:
    """The figure as `png`, `svg` or `pdf`, without a date in it."""
    buffer = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with styled():
        figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()
