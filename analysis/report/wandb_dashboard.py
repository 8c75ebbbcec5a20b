"""A W&B workspace view of a sweep, through `wandb-workspaces`: the report's panels, where the team looks anyway."""

from __future__ import annotations

import hashlib
import json
import string
import warnings
from typing import Any, Final

from polysweep.analysis.data.address import Address
from polysweep.analysis.data.frames import RunSet
from polysweep.sweeps.tracking.wandb_server import open_api
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import first_line
from polysweep.trainer.wandb_client import target_project
from polysweep.trainer.wandb_runs import logged_in

TITLE: Final = "polysweep"
_LETTERS: Final = string.ascii_lowercase + string.digits


def place_of(pulled: RunSet) -> tuple[str | None, str]:
    """Entity and project of the runs: those of a wandb:// address, else the ones that runs are logged to."""
    if pulled.protocol.source.startswith("wandb://"):
        address = Address.parse(pulled.protocol.source)
        return address.entity, address.project
    return target_project(pulled.protocol.entity, pulled.protocol.project)


def view_id(name: str) -> str:
    """The id of a sweep's view, always the same: 11 letters and digits of the hash of its name."""
    digest = hashlib.sha256(f"polysweep dashboard {name}".encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:11])


def workspace(pulled: RunSet, entity: str, project: str) -> Any:
    """The view: runs with the sweep's tag, grouped by their config without the seed, and the panels of the report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import wandb_workspaces.reports.v2 as wr
        import wandb_workspaces.workspaces as ws
        from wandb_workspaces import expr

    protocol, cell = pulled.protocol, set(pulled.protocol.cell)
    names = protocol.names  # theirs, in a project that is not ours
    metric = protocol.metric
    source = protocol.source
    tag = Address.parse(source).tag if source.startswith("wandb://") else protocol.name
    axis = "epoch" if "epoch" in pulled.columns(["epoch"]) else "Step"
    logged = {name for name in pulled.logged if pulled.runs[f"last/{name}"].notna().any()}
    grouped: dict[str, Any] = {
        "groupby": "Group",
        "groupby_aggfunc": "mean",
        "groupby_rangefunc": "stddev",
        "max_runs_to_show": 100,
    }

    def theirs(name: str) -> str:
        return names.get(name, name)

    def lines(title: str, *shown: str, **options: Any) -> Any:
        return wr.LinePlot(title=title, x=axis, y=[theirs(name) for name in shown], **grouped, **options)

    def points(field: str, log: bool) -> Any:
        return wr.ScatterPlot(
            title=f"last {metric} against {field}",
            x=wr.Config(theirs(field)),
            y=wr.SummaryMetric(theirs(metric)),
            log_x=log,
        )

    choice: list[Any] = []
    if "rho" in pulled.runs:
        choice.append(points("rho", False))
    for field in ("lr", "gamma_b"):
        if field in {*protocol.tuned, *cell}:
            choice.append(points(field, True))
    varying = [name for name in (*protocol.cell, *protocol.tuned) if name in pulled.runs]
    columns = [wr.ParallelCoordinatesPlotColumn(metric=wr.Config(theirs(name))) for name in varying]
    if columns:
        columns.append(wr.ParallelCoordinatesPlotColumn(metric=wr.SummaryMetric(theirs(metric))))
        choice.append(wr.ParallelCoordinatesPlot(title=f"last {metric} over the sweep", columns=columns))
    curves = [
        lines(f"{name}: mean and std over seeds", name)
        for name in dict.fromkeys([metric, "test/top1", "train/loss"])
        if name in logged or name == metric
    ]
    gamma = []
    if "gamma/mean" in logged:
        gamma.append(lines("step size gamma", "gamma/mean", log_y=True))
    shares = [name for name in ("gamma/cap_share", "gamma/zero_share") if name in logged]
    gamma += [lines(f"{name} of the steps", name) for name in shares]
    if "ascent_gain" in logged:
        gamma.append(lines("ascent gain f(e) - f(x)", "ascent_gain"))
    sections = [ws.Section(name="Robustness and stability", panels=choice, is_open=True)] if choice else []
    sections.append(ws.Section(name="Training curves", panels=curves, is_open=True))
    if gamma:
        sections.append(ws.Section(name="Step size and ascent gain", panels=gamma, is_open=True))
    made = ws.Workspace(
        entity=entity,
        project=project,
        name=f"{TITLE}: {protocol.name}",
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis=axis, max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(ws.Tags().isin([tag])) if tag else "", groupby=[ws.Metric("Group")]
        ),
    )
    for at, panel in enumerate(panel for section in sections for panel in section.panels):
        panel._id = f"polysweep{at}"  # the client would draw one at random: the same sweep is the same definition
    made._internal_name = f"nw-{view_id(protocol.name)}-v"
    return made


def definition(view: Any) -> dict[str, Any]:
    """What would be saved, as W&B's server gets it."""
    found: dict[str, Any] = json.loads(view._to_model().model_dump_json(by_alias=True, exclude_none=True))
    return found


def save(pulled: RunSet) -> tuple[str, bool]:
    """Create the view of a sweep, or bring it up to date; its address, and whether it is new.

    Raises `UserError` without a key, where the server cannot be used, and for an unknown project.
    """
    if not logged_in():
        raise UserError("dashboard: no W&B key; set WANDB_API_KEY, run `wandb login`, or look at --dry-run")
    entity, project = place_of(pulled)
    _, entity = open_api(60, entity, "dashboard: ")
    view = workspace(pulled, entity, project)
    import wandb_workspaces.workspaces as ws

    try:
        there = ws.Workspace.from_url(view.url)
        view._internal_id = there._internal_id
        view._internal_runset_id = there._internal_runset_id
        is_new = False
    except ValueError as error:
        if "Workspace `" not in str(error):
            raise UserError(f"dashboard: {entity}/{project}: {first_line(error)}") from None
        is_new = True
    except Exception as error:
        raise UserError(f"dashboard: the W&B server does not answer: {first_line(error)}") from None
    try:
        view.save()
    except Exception as error:
        raise UserError(f"dashboard: the view cannot be saved: {first_line(error)}") from None
    return str(view.url), is_new
