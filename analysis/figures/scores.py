"""Robustness scores: how much of the metric is lost from the smallest radius to the largest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from polysweep.analysis.figures.lines import line_names
from polysweep.analysis.figures.styles import is_number
from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.selection import Selection


def robustness_scores(selection: Selection, layout: Layout | None = None) -> pd.DataFrame:
    """Per table and scheduler the drop of the metric from the smallest radius to the largest one.

    drop = mean at the smallest radius - mean at the largest, in the direction in which more is better, so that a loss
    that rises is a drop too. The radii are those of the sweep, not chosen by the results: without an effect a drop is
    as often negative as positive. Columns table, scheduler (or the other fields that the layout has across),
    smallest_rho, largest_rho, drop, low and high (its 95 % interval, `Selection.difference`), n, diverged (no seed has
    finished at the largest radius, and some diverged there: then there is no drop). Undecided cells have none.
    """
    layout = layout or Layout.of(selection)
    if selection.is_maximal is None:
        return pd.DataFrame()
    rows = []
    for values, cells in subtables(selection, layout):
        with_radius = cells[cells["rho"].notna()]
        for _, line in with_radius.groupby(line_names(with_radius, layout.cols), sort=False):
            rows += _score(selection, table_name(selection, values), line, layout)
    return pd.DataFrame(rows)


def table_name(selection: Selection, values: Mapping[str, Any]) -> str:
    """What a row of scores says of its table: `weight_decay=0.0 optimizer=usam`, the sweep's name where it has one."""
    return " ".join(f"{name}={value}" for name, value in values.items()) or selection.pulled.protocol.name


def _score(selection: Selection, table: str, line: pd.DataFrame, layout: Layout) -> list[dict[str, Any]]:
    """The score of one line, none where it has one radius, radii that are words, or an undecided end."""
    if line["rho"].nunique() < 2 or not all(map(is_number, line["rho"])):
        return []
    ends = line.sort_values("rho").iloc[[0, -1]]
    first, last = ends.to_dict("records")
    if not ends["n"].any() or ends["undecided"].any():
        return []
    drop = selection.difference([first], [last])
    return [
        {
            "table": table,
            **{name: first[name] for name in layout.cols},
            "smallest_rho": first["rho"],
            "largest_rho": last["rho"],
            "drop": drop.estimate,
            "low": drop.low,
            "high": drop.high,
            "n": drop.n if first["n"] and last["n"] else 0,
            "diverged": bool(not last["n"] and last["diverged"] > 0),
        }
    ]
