"""A W&B workspace view of a sweep, through `wandb-workspaces`: the report's panels, where the team looks anyway."""

from __future__ import annotations

import json
from typing import Any

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.report.wandb_panels import MOST_RUNS, TITLE, Panels, filters_of, fixed_id, place_of, tag_of
from polysweep.sweeps.tracking.wandb_server import TIMEOUT_SECONDS, open_api, require_runs
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import first_line
from polysweep.trainer.wandb_runs import logged_in


def workspace(pulled: RunSet, entity: str, project: str) -> Any:
    """The view: runs with the sweep's tag, grouped by what their seeds share, and the panels of the report."""
    panels = Panels(pulled)
    import wandb_workspaces.workspaces as ws

    view = ws.Workspace(
        entity=entity,
        project=project,
        name=f"{TITLE}: {pulled.protocol.name}",
        sections=[ws.Section(name=title, panels=some, is_open=True) for title, some in panels.sections().items()],
        settings=ws.WorkspaceSettings(x_axis=panels.axis, max_runs=MOST_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=filters_of(pulled.protocol),
            groupby=[ws.Metric("Group")] if panels.has_groups else [ws.Config(path) for path in panels.fields],
        ),
    )
    view._internal_name = f"nw-{fixed_id('dashboard', pulled.protocol.name)}-v"
    return view


def definition(view: Any) -> dict[str, Any]:
    """What would be saved, as W&B's server gets it."""
    written: dict[str, Any] = json.loads(view._to_model().model_dump_json(by_alias=True, exclude_none=True))
    return written


def save(pulled: RunSet) -> tuple[str, bool]:
    """Create the view of a sweep, or bring it up to date; its address, and whether it is new.

    Raises `UserError` without a key, if the server cannot be used, for an unknown project, and for one that has no
    run of the sweep.
    """
    if not logged_in():
        raise UserError("dashboard: no W&B key; set WANDB_API_KEY, run `wandb login`, or look at --dry-run")
    entity, project = place_of(pulled)
    api, entity = open_api(TIMEOUT_SECONDS, entity, "dashboard: ")
    require_runs(api, f"{entity}/{project}", tag_of(pulled.protocol), "dashboard: ")
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
