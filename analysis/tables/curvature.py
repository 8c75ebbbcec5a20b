"""Curvature of what was chosen: the runs behind a scatter, and a table of means. Pure."""

from __future__ import annotations

from typing import Final

import pandas as pd

from polysweep.analysis.tables.selection import TABLE_KEYS, Selection, format_value
from polysweep.analysis.tables.wording import axis_label, in_unicode
from polysweep.analysis.tables.writers import Table
from polysweep.trainer.history import shown_number

PREFIX: Final = "curvature/"
HIDDEN: Final = ("loss", "grad_norm", "eigenvalue_error", "trace_se")
"""Measured beside the curvature itself."""


def drawn_columns(selection: Selection) -> list[str]:
    """The measures of curvature that the runs have: of the eigenvalues the largest."""
    names = [name for name in selection.pulled.protocol.probed if name.startswith(PREFIX)]
    kept = [name for name in names if name.removeprefix(PREFIX) not in HIDDEN]
    return [name for name in kept if "eigenvalue-" not in name or name.endswith("-1")]


def curvature_runs(selection: Selection) -> tuple[str, pd.DataFrame]:
    """The accuracy that is drawn, and a row per finished run of the chosen candidates.

    Columns are the fields of its cell, `selected`, trial_id, seed, the accuracy (or what the sweep's metric is) and
    every measure of curvature, all of the epoch that was measured. If the selection reports a measure of curvature
    itself, the accuracy is the sweep's metric.
    """
    rule = selection.pulled.protocol
    metric = rule.metric if selection.metric in rule.probed else selection.metric
    measures = [name for name in rule.probed if name.startswith(PREFIX)]
    which = rule.probed[measures[0]] if measures else "last"
    finished = selection.values[selection.values["outcome"] == "finished"]
    fields = list(dict.fromkeys([*TABLE_KEYS, *selection.varying, "trial_id", "seed"]))
    names = {f"{which}/{name}": name for name in (metric, *measures)}
    measured = selection.pulled.runs[["trial_id", *names]].rename(columns=names)
    runs = finished[fields].merge(measured.astype({"trial_id": object}), on="trial_id", how="left")
    return metric, runs.astype(dict.fromkeys(names.values(), float))


def curvature_means(selection: Selection) -> pd.DataFrame:
    """A row per cell and measure: the fields of the cell, `measure`, n, mean and sample std (ddof = 1)."""
    _, runs = curvature_runs(selection)
    fields = list(dict.fromkeys([*TABLE_KEYS, *selection.varying]))
    long = runs.melt(fields, drawn_columns(selection), "measure", "value")
    groups = long.groupby([*fields, "measure"], dropna=False, sort=False)["value"]
    return groups.agg(n="count", mean="mean", std="std").reset_index()


def curvature_table(selection: Selection) -> Table | None:
    """A row per cell, a column per measure: mean +- std, and n; None if nothing was measured."""
    columns = drawn_columns(selection)
    if not columns:
        return None
    means = curvature_means(selection)
    fields = [name for name in means.columns[: -len(("measure", "n", "mean", "std"))] if means[name].notna().any()]
    rows = []
    for key, cell in means.groupby(fields, dropna=False, sort=False):
        texts = {row["measure"]: _text(row["mean"], row["std"]) for row in cell.to_dict("records")}
        rows.append([*map(format_value, key), *(texts[name] for name in columns), str(cell["n"].max())])
    which = selection.pulled.protocol.probed[columns[0]]
    notes = [f"At the weights of the {which} epoch, on training images without augmentation; mean +- std over n seeds."]
    header = [*fields, *(in_unicode(axis_label(name)) for name in columns), "n"]
    return Table(header, rows, len(fields), selection.pulled.protocol.name, {}, "curvature", notes)


def _text(mean: float, std: float) -> str:
    return "-" if pd.isna(mean) else f"{shown_number(mean)} +- {'-' if pd.isna(std) else shown_number(std)}"
