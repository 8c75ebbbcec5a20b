"""Frames as CSV that a spreadsheet opens as what it is: text stays text, numbers stay numbers."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import pandas as pd

from polysweep.trainer.text import printable

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet takes for a formula."""


def to_csv(frame: pd.DataFrame) -> str:
    """The frame as CSV without its index.

    Text that a spreadsheet would run as a formula begins with an apostrophe, which shows it as text; a number, also one
    that is given as text, such as -0.5, stays as it is.
    """
    safe = frame.rename(columns=_cell)
    for at, kind in enumerate(frame.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            safe.isetitem(at, frame.iloc[:, at].map(_cell).to_numpy(dtype=object))
    return safe.to_csv(index=False)


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = printable(value)
    if not value.startswith(FORMULA):
        return text
    with contextlib.suppress(ValueError):
        float(value)
        return text
    return f"'{text}"
