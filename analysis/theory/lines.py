"""The curves of a sweep of convex problems: one line per chosen configuration, with its title and label."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from polysweep.analysis.data.frames import to_python
from polysweep.analysis.tables.selection import Selection, format_value
from polysweep.analysis.theory.curves import FINAL, HIT, PUBLISHED, MethodCurve, is_missing
from polysweep.trainer.convex.coverage import ROUNDING as COVERED
from polysweep.trainer.convex.problem import CONVEX, Problem, problem_of
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import PROBLEM_COLUMNS

NOT_OF_THE_PROBLEM: Final = ("task_options.record_every", "task_options.check")


def lines_of(selection: Selection) -> list[MethodCurve]:
    """The chosen configuration of every cell of which a run has ended.

    Raises `UserError` if a task is not convex with known constants, if the sweep was not run with the columns of
    one, and where a radius is above 1/L of its theorem.
    """
    runs = selection.pulled.runs
    other = sorted({str(task) for task in to_python(runs["task"])} - set(CONVEX))
    if other:
        raise UserError(
            f"{selection.pulled.protocol.name}: the paper's bounds are for convex tasks with known constants "
            f"({', '.join(CONVEX)}), not for {', '.join(other)}"
        )
    wanted = ["trial_id", "step", *PROBLEM_COLUMNS]
    history = selection.pulled.columns(wanted)
    missing = [name for name in ("step", "distance") if name not in history]
    if missing:
        raise UserError(f"{selection.pulled.protocol.name}: no run has logged {', '.join(missing)}")
    numbers = [name for name in history.columns if name != "trial_id"]
    history = history.astype(dict.fromkeys(numbers, float))
    by_id = {row["trial_id"]: row for row in runs.to_dict("records")}
    finished = selection.values[selection.values["outcome"] == "finished"]
    members: dict[tuple[str, ...], list[str]] = {}
    for run in finished.to_dict("records"):
        members.setdefault(selection.key(run), []).append(str(run["trial_id"]))
    cells = selection.cells.to_dict("records")
    shared = _shared(by_id.values())
    lost = {selection.key(run): str(run["trial_id"]) for run in selection.values.to_dict("records")
            if run["outcome"] in ("diverged", "failed", "stopped")}  # fmt: skip
    begun = {selection.cell_key(run): trial_id for trial_id, run in by_id.items() if run["outcome"] != "new"}
    curves: list[MethodCurve] = []
    for cell in cells:
        ids = members.get(selection.key(cell), [])
        first = (
            ids[0] if ids else lost.get(selection.key(cell)) or (cell["leading"] and begun[selection.cell_key(cell)])
        )
        if first:
            curves.append(_line(selection, cell, by_id[first], history[history["trial_id"].isin(ids)], shared))
    if not curves:
        raise UserError(f"{selection.pulled.protocol.name}: no run has finished yet")
    return curves


def _line(
    selection: Selection, cell: Mapping[Any, Any], run: Mapping[Any, Any], history: pd.DataFrame, shared: set[str]
) -> MethodCurve:
    head = "task_options."
    options = {
        str(name).removeprefix(head): _value(value)
        for name, value in run.items()
        if str(name).startswith(head) and not is_missing(value)
    }
    problem = problem_of(str(run["task"]), options)
    size = int(run["batch_size"])
    title = _title(run, options, problem, size, shared)
    steps = float(history["step"].max()) if len(history) else math.nan
    candidates = {
        column: selection.by_candidate(cell, f"last/{column}", steps)
        for column in (FINAL, HIT)
        if not cell["undecided"] and f"last/{column}" in selection.pulled.runs
    }
    line = MethodCurve(_label(selection, run, cell), title, problem, size, cell, run, history, candidates)
    if line.is_ours and not line.decreases and line.smooth * line.rho > 1 + COVERED:
        letter = "L" if line.is_full else "L_max"
        raise UserError(
            f"{selection.pulled.protocol.name}: rho = {line.rho:g} of {line.label} is above 1/{letter} = "
            f"{1 / line.smooth:.6g}: no theorem of the paper covers it"
        )
    return line


def _shared(runs: Any) -> set[str]:
    """The task options that are the same in all runs of a task: no title needs them."""
    of_fields: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for name, value in run.items():
            if str(name).startswith("task_options."):
                of_fields.setdefault((str(run["task"]), str(name)), set()).add(format_value(value))
    return {f"{task} {name}" for (task, name), values in of_fields.items() if len(values) == 1}


def _title(run: Mapping[Any, Any], options: Mapping[str, Any], problem: Problem, size: int, shared: set[str]) -> str:
    """`ridge, full batches` or `ridge lambda_r=0.001 consistent=False, mini-batches of 10`."""
    told = [
        f"{name}={value}"
        for name, value in sorted(options.items())
        if f"task_options.{name}" not in NOT_OF_THE_PROBLEM and f"{run['task']} task_options.{name}" not in shared
    ]
    batches = "full batches" if size == problem.n else f"mini-batches of {size}"
    return f"{' '.join([str(run['task']), *told])}, {batches}"


def _label(selection: Selection, run: Mapping[Any, Any], cell: Mapping[Any, Any]) -> str:
    """`usam polyak rho=0.1 gamma_b=1.0`: what tells the method from the others of its sweep, and what was chosen."""
    skipped = ("optimizer", "scheduler", "task", "model", "batch_size")
    step = ["lr"] if run["scheduler"] == "constant" else []
    protocol = selection.pulled.protocol
    told = []
    open_ = protocol.tuned if cell["leading"] else ()
    for name in dict.fromkeys(["rho", *step, *protocol.cell, *protocol.tuned]):
        value = run.get(name)
        plain_radius = name == "rho_schedule" and value == "constant"
        in_title = name.startswith("task_options.") and name not in NOT_OF_THE_PROBLEM
        if name not in (*skipped, *open_) and not in_title and not is_missing(value) and not plain_radius:
            told.append(f"{name.rpartition('.')[2]}={format_value(value)}")
    head = str(run["scheduler"]) if run["scheduler"] in PUBLISHED else f"{run['optimizer']} {run['scheduler']}"
    if run["scheduler"] == "constant" and run["optimizer"] not in ("usam", "sam", "sgd"):
        head = str(run["optimizer"])
    return " ".join([head, *told])


def _value(value: Any) -> Any:
    """A plain Python value."""
    return value.item() if hasattr(value, "item") else value
