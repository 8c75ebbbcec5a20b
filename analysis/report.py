"""One self-contained HTML page: it needs no network, and everything on it is in it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib import pyplot as plt

from analysis.plots import figures, image, require_history
from analysis.select import Selection
from analysis.tables import caption, cell_text, mean_std_table, subtables
from trainer.registry import UserError

PROVENANCE = (
    "commit",
    "version.polysweep",
    "version.torch",
    "version.ray",
    "version.wandb",
    "version.python",
    "device",
    "device_model",
    "threads",
    "width",
    "numerics",
    "image",
)


def write_report(selection: Selection, out: Path) -> None:
    """Write the page.

    Raises `UserError` where it cannot be written, or where nothing has been trained yet.
    """
    require_history(selection)
    html = render_report(selection)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out: {out} cannot be written: {error}") from None


def render_report(selection: Selection) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("analysis", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    spec, runs = selection.pulled.spec, selection.pulled.runs
    outcomes = runs["outcome"].value_counts()
    return environment.get_template("report.html.j2").render(
        name=spec.name,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        caption=caption(selection),
        on_test=selection.on_test,
        trials=len(runs),
        cells=len(selection.cells),
        outcomes={str(k): int(v) for k, v in outcomes.items()},
        hours=float(runs["seconds"].fillna(0).sum()) / 3600,
        tables=[_table(selection, values, cells) for values, cells in subtables(selection)],
        plots=_plots(selection),
        selection=_selection_rows(selection),
        metric=spec.metric,
        failures=_failures(selection),
        spec=spec.text,
        provenance=_provenance(runs),
    )


def _table(selection: Selection, values: dict[str, Any], cells: pd.DataFrame) -> dict[str, Any]:
    def show(cell: Any, best: bool) -> str:
        return ("*" if best else " ") + cell_text(cell, selection.metric)

    table = mean_std_table(selection, cells, show)
    rows = [
        (rho, [(entry[1:].replace("+-", "±"), entry.startswith("*")) for entry in row])
        for rho, row in zip(table.index, table.values, strict=True)
    ]
    title = ", ".join(f"{key} = {value}" for key, value in values.items())
    return {"title": title, "columns": list(table.columns), "rows": rows}


def _plots(selection: Selection) -> list[dict[str, str]]:
    shown = []
    for name, figure in figures(selection):
        data = base64.b64encode(image(figure, "svg")).decode()
        plt.close(figure)
        shown.append({"name": name, "data": f"data:image/svg+xml;base64,{data}"})
    return shown


def _selection_rows(selection: Selection) -> list[dict[str, Any]]:
    """Every candidate, the chosen ones marked; only where something was tuned."""
    if not selection.pulled.spec.tuned:
        return []
    return [
        {
            "cell": _label(row, ["rho", "scheduler", *selection.varying]),
            "choice": row["selected"] or "(nothing to tune)",
            "chosen": row["rank"] == 1,
            "text": cell_text(row, selection.metric).replace("+-", "±"),
            "n": f"{row['n']}/{row['seeds']}",
        }
        for row in selection.candidates.to_dict("records")
    ]


def _failures(selection: Selection) -> list[dict[str, Any]]:
    """Trials that have no number: diverged, failed, stopped or not ended."""
    spec, runs = selection.pulled.spec, selection.pulled.runs.set_index("trial_id")
    rows = []
    for trial in spec.trials:
        run = runs.loc[trial.trial_id]
        if run["outcome"] == "finished":
            continue
        step: Any = run["diverged_step"]
        detail = f"after step {int(step)}" if pd.notna(step) else str(run["error"] or "").strip()
        tuned = {name: getattr(trial.config, name) for name in spec.tuned}
        label = {**trial.cell, **{k: v for k, v in tuned.items() if v is not None}, "seed": trial.config.seed}
        rows.append(
            {
                "trial_id": trial.trial_id,
                "label": _label(label, list(label)),
                "outcome": run["outcome"],
                "detail": detail,
            }
        )
    return rows


def _provenance(runs: pd.DataFrame) -> list[tuple[str, list[tuple[str, int]]]]:
    """By field, its distinct values and how many trials have each: a mixture is visible."""
    found = []
    for field in PROVENANCE:
        values = runs[field].dropna() if field in runs else pd.Series(dtype=object)
        counts = values.map(lambda value: f"{value:g}" if isinstance(value, float) else str(value)).value_counts()
        found.append((field, [(str(value), int(count)) for value, count in counts.items()]))
    return found


def _label(row: Any, keys: list[str]) -> str:
    return " ".join(f"{key}={row[key]}" for key in keys if not pd.isna(row[key]))
