"""What Python and a notebook show of an object: one line, and a small table below it."""

from __future__ import annotations

from html import escape
from typing import Final

import pandas as pd

MOST_ROWS: Final = 20


class Displayed:
    """An object with a short `repr`, also as HTML, instead of the frames in it."""

    def headline(self) -> str:
        """The object in one line."""
        raise NotImplementedError

    def overview(self) -> pd.DataFrame:
        """The rows below that line; by default none."""
        return pd.DataFrame()

    def __repr__(self) -> str:
        table = self.overview()
        rows = f"\n{table.to_string(index=False, max_rows=MOST_ROWS)}" if len(table) else ""
        return f"{self.headline()}{rows}"

    def _repr_html_(self) -> str:
        table = self.overview()
        rows = table.to_html(index=False, max_rows=MOST_ROWS, border=0) if len(table) else ""
        return f"<p>{escape(self.headline())}</p>{rows}"
