"""Some cells of a selection: of the fields that tell cells apart, only those values that are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from polysweep.analysis.tables.layout import require_varying
from polysweep.analysis.tables.selection import Selection, format_value
from polysweep.analysis.tables.wording import value_text
from polysweep.trainer.errors import UserError, expected


def only(selection: Selection, wanted: Mapping[str, Any]) -> Selection:
    """The cells of which each field of `wanted` has one of its values, with their candidates and runs.

    A value is a number, a text, or a sequence of them; a text may name several with commas. `-` stands for cells to
    which the field does not apply. What was chosen in a cell, and from what, is as before.

    Raises `UserError` for a field that tells no cells apart, and for a value that no cell has.
    """
    cells = selection.cells
    for name, values in wanted.items():
        require_varying(selection, name, "--only")
        cells = cells[[format_value(value) in _matching(selection, name, values) for value in cells[name]]]
    if not len(cells):
        raise UserError(f"--only: no cell has all of {' '.join(f'{name}={value}' for name, value in wanted.items())}")
    kept = {selection.cell_key(cell) for cell in cells.to_dict("records")}

    def of(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[[selection.cell_key(row) in kept for row in frame.to_dict("records")]]

    return replace(selection, cells=cells, values=of(selection.values), candidates=of(selection.candidates))


def parse_only(texts: Sequence[str]) -> dict[str, str]:
    """`FIELD=VALUE[,VALUE...]`, each field once.

    Raises `UserError` for anything else.
    """
    picked: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UserError(f"--only: {text!r}; expected FIELD=VALUE[,VALUE...], such as optimizer=sam,usam")
        if name in picked:
            raise UserError(f"--only: {name!r} is given twice; list its values with commas: {name}={picked[name]},...")
        picked[name] = value
    return picked


def _matching(selection: Selection, name: str, values: Any) -> set[str]:
    """The values of a field, as text, that are asked for."""
    there = dict.fromkeys(map(format_value, selection.cells[name]))
    if isinstance(values, str):
        asked: Sequence[Any] = [values] if _same(values, there) else [part.strip() for part in values.split(",")]
    else:
        asked = values if isinstance(values, Sequence) else [values]
    matching = set()
    for value in asked:
        same = _same(format_value(value), there)
        if not same:
            choices = expected(format_value(value), [value_text(one) for one in there])
            raise UserError(f"--only: no cell has {name}={value}; {choices}")
        matching |= same
    return matching


def _same(text: str, there: Mapping[str, Any]) -> set[str]:
    """The values that are written so, or are the same number."""
    return {one for one in there if one == text or _number(one) == _number(text) is not None}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
