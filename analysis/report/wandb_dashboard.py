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

    protocol = pulled.protocol
    tag = Address.parse(protocol.source).tag if protocol.source.startswith("wandb://") else protocol.name
    panels = _Panels(pulled, wr)
    by_section = {
        "Robustness and stability": panels.against_fields(),
        "Training curves": panels.curves(),
        "Step size and ascent gain": panels.step_sizes(),
    }
    sections = [ws.Section(name=name, panels=some, is_open=True) for name, some in by_section.items() if some]
    view = ws.Workspace(
        entity=entity,
        project=project,
        name=f"{TITLE}: {protocol.name}",
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis=panels.axis, max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(ws.Tags().isin([tag])) if tag else "", groupby=[ws.Metric("Group")]
        ),
    )
    for at, panel in enumerate(panel for section in sections for panel in section.panels):
        panel._id = f"polysweep{at}"  # the client would draw one at random: the same sweep is the same definition
    view._internal_name = f"nw-{view_id(protocol.name)}-v"
    return view


class _Panels:
    """The panels of a view, one method a section."""

    def __init__(self, pulled: RunSet, wr: Any) -> None:
        self._wr = wr  # the module `wandb_workspaces.reports.v2`
        self._pulled = pulled
        self._protocol = pulled.protocol
        self._logged = {name for name in pulled.logged if pulled.runs[f"last/{name}"].notna().any()}
        self.axis = "epoch" if "epoch" in pulled.columns(["epoch"]) else "Step"

    def against_fields(self) -> list[Any]:
        """The metric against the radius, step size and cap, and over all fields that vary."""
        wr, protocol, metric = self._wr, self._protocol, self._protocol.metric
        varying = [name for name in (*protocol.cell, *protocol.tuned) if name in self._pulled.runs]
        panels = [self._points("rho", log=False)] if "rho" in self._pulled.runs else []
        panels += [self._points(name, log=True) for name in ("lr", "gamma_b") if name in protocol.cell + protocol.tuned]
        if protocol.is_search:
            logs = protocol.log_fields or ()
            panels = [self._points(name, log=name in logs) for name in varying]
            panels.append(wr.ParameterImportancePlot(with_respect_to=self._theirs(metric)))
        if varying:
            axes = [*(wr.Config(self._theirs(name)) for name in varying), wr.SummaryMetric(self._theirs(metric))]
            columns = [wr.ParallelCoordinatesPlotColumn(metric=one) for one in axes]
            panels.append(wr.ParallelCoordinatesPlot(title=f"last {metric} over the sweep", columns=columns))
        return panels

    def curves(self) -> list[Any]:
        """The metric, test accuracy and training loss over the epochs; the metric also where no run has logged it."""
        names = dict.fromkeys([self._protocol.metric, "test/top1", "train/loss"])
        there = self._logged | {self._protocol.metric}
        return [self._lines(f"{name}: mean and std over seeds", name) for name in names if name in there]

    def step_sizes(self) -> list[Any]:
        """The step size, its shares at the cap and at 0, and the ascent gain, where they were logged."""
        titles: dict[str, tuple[str, dict[str, Any]]] = {
            "gamma/mean": ("step size gamma", {"log_y": True}),
            "gamma/cap_share": ("gamma/cap_share of the steps", {}),
            "gamma/zero_share": ("gamma/zero_share of the steps", {}),
            "ascent_gain": ("ascent gain f(e) - f(x)", {}),
        }
        return [
            self._lines(title, name, **options) for name, (title, options) in titles.items() if name in self._logged
        ]

    def _theirs(self, name: str) -> str:
        """The project's name of one of our fields or columns."""
        return self._protocol.names.get(name, name)

    def _lines(self, title: str, name: str, **options: Any) -> Any:
        return self._wr.LinePlot(
            title=title, x=self.axis, y=[self._theirs(name)], groupby="Group", groupby_aggfunc="mean",
            groupby_rangefunc="stddev", max_runs_to_show=100, **options,
        )  # fmt: skip

    def _points(self, name: str, *, log: bool) -> Any:
        metric = self._protocol.metric
        return self._wr.ScatterPlot(
            title=f"last {metric} against {name}",
            x=self._wr.Config(self._theirs(name)),
            y=self._wr.SummaryMetric(self._theirs(metric)),
            log_x=log,
        )


def definition(view: Any) -> dict[str, Any]:
    """What would be saved, as W&B's server gets it."""
    written: dict[str, Any] = json.loads(view._to_model().model_dump_json(by_alias=True, exclude_none=True))
    return written


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
