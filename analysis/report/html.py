"""One self-contained HTML page: it needs no network, and everything on it is in it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from polysweep.analysis.data.frames import RunSet, to_python
from polysweep.analysis.figures.epochs import require_history
from polysweep.analysis.figures.files import image
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.published.cells import Published
from polysweep.analysis.published.comparison import Compared
from polysweep.analysis.published.formats import cell_rows, claim_rows, headline, summary_rows
from polysweep.analysis.report.summary import (
    MOST_POINTS,
    MOST_TABLES,
    Summary,
    answer_rows,
    beside_published,
    claims_text,
    comparison_rows,
)
from polysweep.analysis.tables.answers import answers
from polysweep.analysis.tables.curvature import curvature_table
from polysweep.analysis.tables.formats import tables_of
from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.leaderboard_table import points_table, search_table
from polysweep.analysis.tables.mean_std import (
    RowVerdict,
    caption,
    cell_text,
    long_table,
    row_verdicts,
)
from polysweep.analysis.tables.replication import decision_rows, replication_text
from polysweep.analysis.tables.selection import Selection, format_value, number
from polysweep.analysis.tables.severity import severity_tables
from polysweep.analysis.tables.spreadsheet import to_csv
from polysweep.analysis.tables.wording import settings_in_words
from polysweep.analysis.tables.writers import Entry, Table
from polysweep.sweeps.planning.welch import p_text
from polysweep.trainer.errors import UserError

PROVENANCE: Final = (
    "commit", "version.polysweep", "version.torch", "version.ray", "version.wandb", "version.python", "device",
    "device_model", "threads", "width", "numerics", "image", "sources",
)  # fmt: skip


def write_report(
    selection: Selection, out: Path, published: Published | None = None, where: Mapping[str, str] | None = None
) -> None:
    """Write the page; `where` as of `compare`.

    Raises `UserError` if it cannot be written, or if nothing has been trained yet.
    """
    require_history(selection)
    html = render_report(selection, published, where)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out: {out} cannot be written: {error}") from None


def render_report(
    selection: Selection, published: Published | None = None, where: Mapping[str, str] | None = None
) -> str:
    """The page as text; with `published` a comparison is on it, if the sweep has any of its cells."""
    environment = Environment(
        loader=PackageLoader("polysweep.analysis.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    protocol, runs = selection.pulled.protocol, selection.pulled.runs
    summary = Summary.of(selection)
    layout, is_search = Layout.of_tables(selection), protocol.is_search
    if is_search:
        tables = [_table(search_table(selection, MOST_POINTS))]
    else:
        tables = [_table(table) for table in tables_of(selection, layout, verdicts=False)]
    if curvature := curvature_table(selection):
        tables.append({**_table(curvature), "title": "curvature"})
    corrupted = severity_tables(selection)
    compared, beside, without = beside_published(selection, published, where)
    return environment.get_template("report.html.j2").render(
        name=protocol.name,
        source=protocol.source,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        caption=caption(selection),
        summary=summary,
        claims=_claims(selection.pulled),
        decided=_decided(selection.pulled),
        notes=[*summary.notes, *([without] if without else [])],
        verdicts=[] if is_search else _verdicts(selection, layout),
        tables=tables,
        is_search=is_search,
        severity=[(table.values["corruption"], [table.header, *table.rows]) for table in corrupted],
        severity_caption=corrupted[0].caption if corrupted else "",
        numbers=_download(points_table(selection) if is_search else long_table(selection)),
        plots=_plots(selection, beside),
        most_tables=MOST_TABLES,
        compared=None if compared is None else _compared(compared),
        selection=_selection_rows(selection),
        metric=selection.by,
        goal="maximized" if selection.pulled.protocol.is_maximal else "minimized",
        failures=_failures(selection),
        spec=protocol.text,
        provenance=provenance(runs),
    )


def _claims(pulled: RunSet) -> dict[str, Any] | None:
    """The claims that the sweep made, answered; None if it made none."""
    of_claims = answers(pulled)
    if not of_claims:
        return None
    details = [(str(one.claim), comparison_rows(one)) for one in of_claims if len(one.comparisons)]
    return {"about": claims_text(pulled), "rows": answer_rows(of_claims), "details": details}


def _decided(pulled: RunSet) -> dict[str, Any] | None:
    """What a replication has decided; None without one."""
    about = replication_text(pulled)
    return {"about": about, "rows": decision_rows(pulled)} if about else None


def _verdicts(selection: Selection, layout: Layout) -> list[dict[str, Any]]:
    """Per table the best cell of each row against the runner-up."""
    return [
        {
            "title": settings_in_words(values),
            "rows_are": " ".join(layout.rows),
            "rows": [_verdict(one, selection.metric) for one in row_verdicts(selection, cells, layout)],
        }
        for values, cells in subtables(selection, layout)
    ]


def _verdict(one: RowVerdict, metric: str) -> dict[str, Any]:
    difference = one.difference
    is_tested = not math.isnan(one.p)
    return {
        "row": " ".join(one.row),
        "best": one.best or "-",
        "runner_up": one.runner_up or "-",
        "gap": "-" if math.isnan(difference.estimate) else number(difference.estimate, metric),
        "interval": "-"
        if math.isnan(difference.low)
        else " to ".join(number(end, metric) for end in (difference.low, difference.high)),
        "p": p_text(one.p).removeprefix("p ").removeprefix("= ") if is_tested else difference.reason,
        "n": difference.n,
        "shown": f"undecided: {one.undecided}" if one.undecided else "shown" if one.is_shown else "not shown",
    }


def _table(table: Table) -> dict[str, Any]:
    """A table as the page's template takes it."""
    fields = table.fields
    return {
        "title": settings_in_words(table.values),
        "rows_are": " ".join(table.header[:fields]),
        "columns": table.header[fields:],
        "rows": [
            (
                " ".join(map(str, row[:fields])),
                [(str(one).replace("+-", "±"), isinstance(one, Entry) and one.is_marked) for one in row[fields:]],
            )
            for row in table.rows
        ],
        "notes": table.notes,
    }


def _plots(selection: Selection, beside: Any) -> list[dict[str, str]]:
    plots = []
    for one in figures(selection, width="screen", published=beside, tables=MOST_TABLES):
        data = base64.b64encode(image(one.figure, "svg")).decode()
        plots.append(
            {
                "name": one.name,
                "caption": one.caption,
                "data": f"data:image/svg+xml;base64,{data}",
                "csv": _download(one.data),
            }
        )
    return plots


def _download(data: pd.DataFrame) -> str:
    """A frame as the address of a CSV within the page."""
    return f"data:text/csv;base64,{base64.b64encode(to_csv(data).encode()).decode()}"


def _compared(compared: Compared) -> dict[str, Any]:
    return {
        "headline": headline(compared),
        "summary": summary_rows(compared),
        "claims": claim_rows(compared),
        "tables": [
            (table, cell_rows(compared, table))
            for table in dict.fromkeys(compared.cells["table"])
            if _has_runs(compared, table)
        ],
        "csv": _download(compared.cells.drop(columns=[f"{name} text" for name in compared.readings])),
    }


def _has_runs(compared: Compared, table: str) -> bool:
    rows = compared.cells[compared.cells["table"] == table]
    return bool((rows[[f"{name} n" for name in compared.readings]] > 0).any(axis=None))


def _selection_rows(selection: Selection) -> list[dict[str, Any]]:
    """Every candidate, the chosen ones marked; only if something was tuned."""
    if not selection.pulled.protocol.tuned:
        return []
    keys = ["rho", "scheduler", *selection.varying]
    how = {selection.cell_key(cell): cell for cell in selection.cells.to_dict("records")}
    rows = []
    for row in selection.candidates.to_dict("records"):
        cell = how[selection.cell_key(row)]
        chosen = row["rank"] == 1 and not cell["undecided"]
        rows.append(
            {
                "cell": _label(row, keys),
                "choice": row["selected"] or "(nothing to tune)",
                "rank": row["rank"],
                "chosen": chosen,
                "text": cell_text(row, selection.metric).replace("+-", "±"),
                "score": "-" if pd.isna(row["score"]) else number(row["score"], selection.by),
                "margin": "-" if not chosen or pd.isna(cell["margin"]) else number(cell["margin"], selection.by),
                "n": f"{row['n']}/{row['seeds']}",
                "budget": cell["budget"],
                "remark": _remark(cell) if chosen else "",
            }
        )
    return rows


def _remark(cell: Mapping[Any, Any]) -> str:
    remarks = [f"{name} at the edge of its grid" for name in cell["edge"].split()]
    remarks += [f"{cell[name]} {word}" for name, word in (("ties", "tied"), ("stalled", "stalled")) if cell[name]]
    return "; ".join(remarks)


def _failures(selection: Selection) -> list[dict[str, Any]]:
    """Trials that have no number: diverged, failed, stopped or not ended."""
    protocol, runs = selection.pulled.protocol, selection.pulled.runs
    rows = []
    names = dict.fromkeys([*protocol.cell, *protocol.tuned, "seed"])
    for run in runs[runs["outcome"] != "finished"].to_dict("records"):
        step = run.get("diverged_step")
        detail = f"after step {int(step)}" if step is not None and not pd.isna(step) else ""
        error = run.get("error")
        if not detail and isinstance(error, str):
            detail = error.strip()
        label = {name: run[name] for name in names if name in run and format_value(run[name]) != "-"}
        rows.append(
            {
                "trial_id": run["trial_id"],
                "label": _label(label, list(label)),
                "outcome": run["outcome"],
                "detail": detail,
            }
        )
    return rows


def provenance(runs: pd.DataFrame) -> list[tuple[str, list[tuple[str, int]]]]:
    """By field, its distinct values and how many trials have each: a mixture is visible."""
    rows = []
    for field in PROVENANCE:
        values = [value for value in to_python(runs[field]) if value is not None] if field in runs else []
        counts = pd.Series([f"{value:g}" if isinstance(value, float) else str(value) for value in values], dtype=object)
        if values or field != "sources":  # only parts of a user's own have some
            rows.append((field, [(str(value), int(count)) for value, count in counts.value_counts().items()]))
    return rows


def _label(row: Any, keys: Sequence[str]) -> str:
    return " ".join(f"{key}={row[key]}" for key in keys if format_value(row[key]) != "-")
