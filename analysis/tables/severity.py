"""Accuracy on corrupted test sets by severity: of the chosen runs, at the epoch that was measured. Frames in and out.

It is there if the runs have such columns: `last/test/noise-1` and its kin, or with `launch.keep: best` `best/...`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from polysweep.analysis.data.frames import to_python
from polysweep.analysis.tables.candidates import OUTCOMES, describe
from polysweep.analysis.tables.layout import key_of
from polysweep.analysis.tables.mean_std import caption, cell_entry
from polysweep.analysis.tables.selection import TABLE_KEYS, Selection
from polysweep.analysis.tables.writers import Entry, Table
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import CORRUPTED, CORRUPTIONS, SEVERITIES

CLEAN: Final = "test/top1"
"""The metric of severity 0, in the unit of all others."""
_FACTS: Final = ("seeds", "n", "mean", "std", *OUTCOMES, "stalled")
_OF_CELL: Final = ("selected", "candidates", "undecided", "leading")


def corruptions_of(selection: Selection) -> list[str]:
    """The corruptions of which some run has a measurement."""
    runs, epoch = selection.pulled.runs, _epoch(selection)
    columns = {name: [f"{epoch}/test/{name}-{severity}" for severity in SEVERITIES] for name in CORRUPTIONS}
    return [name for name, some in columns.items() if any(one in runs and runs[one].notna().any() for one in some)]


def _epoch(selection: Selection) -> str:
    """Which epoch was measured: best or last."""
    epochs = selection.pulled.protocol.probed.items()
    return next((epoch for metric, epoch in epochs if metric.removeprefix("test/") in CORRUPTED), "last")


def as_measured(selection: Selection) -> Selection:
    """The same choice, as it is reported here: accuracy at the epoch that was measured."""
    return replace(selection, metric=CLEAN, epoch=_epoch(selection))


def severity_cells(selection: Selection) -> pd.DataFrame:
    """One row per cell, corruption and severity: 0 is the clean test set, `test/top1`.

    The fields of the cell, `corruption`, `severity`, then as in `Selection.cells` counts, `mean` and sample `std` over
    the seeds of the chosen candidate, at the epoch that was measured, whatever the selection reports; a finished run
    without a measurement is `missing`. Raises `UserError` if no run has one.
    """
    runs, fields = selection.pulled.runs, _fields(selection)
    names = corruptions_of(selection)
    if not names:
        raise UserError(f"severity: no run of {selection.pulled.protocol.name} has an accuracy on corrupted images")
    ids = runs["trial_id"].tolist()
    members: dict[tuple[str, ...], list[dict[Any, Any]]] = {}
    for run in selection.values.to_dict("records"):
        members.setdefault(selection.cell_key(run), []).append(run)
    rows = []
    for name in names:
        for severity, column in _columns(name, _epoch(selection)).items():
            if column not in runs:
                continue
            value_of = dict(zip(ids, to_python(runs[column]), strict=True))
            for cell in selection.cells.to_dict("records"):
                facts = _facts(cell, members.get(selection.cell_key(cell), []), value_of, selection)
                place = {"corruption": name, "severity": severity}
                rows.append({**{field: cell[field] for field in (*fields, *_OF_CELL)}, **place, **facts})
    return pd.DataFrame(rows)


def severity_table(selection: Selection) -> pd.DataFrame:
    """The same as text, in percent: an index level for the corruption and per field, a column per severity.

    An entry is `98.31 +- 0.42 (2/3, 1 diverged)`. Raises `UserError` if no run has a measurement.
    """
    cells, fields = severity_cells(selection), ["corruption", *_told_apart(selection)]
    texts = [str(_entry(cell)) for cell in cells.to_dict("records")]
    keys = [key_of(cell, [*fields, "severity"]) for cell in cells.to_dict("records")]
    entries = pd.Series(texts, index=pd.MultiIndex.from_tuples(keys, names=[*fields, "severity"]))
    return entries.unstack("severity", fill_value="-", sort=False)


def severity_tables(selection: Selection) -> list[Table]:
    """A table per corruption, with a row per cell and a column per severity; none if nothing was measured."""
    if not corruptions_of(selection):
        return []
    cells, fields, sweep = severity_cells(selection), _told_apart(selection), selection.pulled.protocol.name
    about = f"{caption(as_measured(selection))}; by severity, 0 is the clean test set"
    tables = []
    for name, rows in cells.groupby("corruption", sort=False):
        severities = sorted(set(rows["severity"]))
        by_place = {(key_of(row, fields), row["severity"]): _entry(row) for row in rows.to_dict("records")}
        keys = dict.fromkeys(key for key, _ in by_place)
        body: list[list[str | Entry]] = [[*key, *(by_place[key, one] for one in severities)] for key in keys]
        header = [*fields, *map(str, severities)]
        tables.append(Table(header, body, len(fields), sweep, {"corruption": str(name)}, about))
    return tables


def _columns(name: str, epoch: str) -> dict[int, str]:
    """By severity the column of `runs`."""
    return {0: f"{epoch}/{CLEAN}", **{severity: f"{epoch}/test/{name}-{severity}" for severity in SEVERITIES}}


def _fields(selection: Selection) -> list[str]:
    return list(dict.fromkeys([*TABLE_KEYS, *selection.pulled.protocol.cell]))


def _told_apart(selection: Selection) -> list[str]:
    """The fields that name a row: those that some cell has."""
    return [name for name in _fields(selection) if selection.cells[name].notna().any()]


def _entry(cell: Mapping[Any, Any]) -> Entry:
    return cell_entry(cell, CLEAN)


def _facts(
    cell: Mapping[Any, Any], runs: list[dict[Any, Any]], value_of: Mapping[str, Any], selection: Selection
) -> dict[str, Any]:
    """Counts, mean and std of the runs of a cell; of an undecided one, which has none yet, the cell's counts."""
    if not runs:
        return {**{name: cell[name] for name in _FACTS}, "mean": math.nan, "std": math.nan}
    measured = [{**run, "value": value_of[run["trial_id"]], "score": None} for run in runs]
    described = describe(measured, selection.pulled.protocol.tuned)
    return {name: described[name] for name in _FACTS}
