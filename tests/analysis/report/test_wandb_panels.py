"""What W&B shows live of every kind of sweep: its runs, how they are grouped, and the panels over them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wandb_workspaces.workspaces as ws
from wandb_workspaces.workspaces import internal

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.report.wandb_dashboard import definition, workspace
from polysweep.analysis.report.wandb_panels import (
    Panels,
    filters_of,
    fixed_id,
    place_of,
    source_of,
    summary_id,
    tag_of,
)
from polysweep.sweeps.spec.protocol import Protocol
from polysweep.sweeps.store.store import Store
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, SPEC, as_runs, by_lr, foreign, sweep
from tests.support.made_searches import SEARCH, search
from tests.support.theory import SMALL, trained

PARAMETERS: Any = SPEC["parameters"]
OPTIONS = {
    "parameters": {**PARAMETERS, "rho": {"value": 0.1}, "model_options.hidden": {"values": [8, 16]}},
    "variants": [{"scheduler": {"value": "polyak"}}],
    "tuned": [],
}
STOPPED = {"early_terminate": {"type": "hyperband", "min_iter": 1, "eta": 2}}


def titles(panels: dict[str, list[Any]]) -> list[str]:
    """Of all panels; an importance plot has none."""
    return [getattr(panel, "title", None) or type(panel).__name__ for some in panels.values() for panel in some]


def grid(folder: Path) -> RunSet:
    return sweep(folder, by_lr)


def options(folder: Path) -> RunSet:
    return sweep(folder, lambda _: [0.9], **OPTIONS)


def bayes(folder: Path) -> RunSet:
    """Before anything has been proposed."""
    return sweep(folder, by_lr, **{**SEARCH, "method": "bayes"})


def terminated(folder: Path) -> RunSet:
    return search(folder, **STOPPED)


def convex(folder: Path) -> RunSet:
    text = SMALL.replace("epochs: {value: 60}", "epochs: {value: 10}").replace("seeds: 5", "seeds: 1")
    return pull(trained(text, folder), store=Store(str(folder)), cache=folder / "cache")


LAST = "last test/top1"
OURS = ["test/top1: mean and std over seeds", "train/loss: mean and std over seeds"]
POINTS = ["rho", "lr", "momentum", "optimizer"]


@pytest.mark.parametrize(
    ("kind", "first", "curves"),
    [
        (grid, [f"{LAST} against rho", f"{LAST} against lr", f"{LAST} over the sweep"], OURS),
        (options, [f"{LAST} over the sweep"], OURS),
        (
            search,
            ["ParameterImportancePlot", f"{LAST} over the sweep", *(f"{LAST} against {one}" for one in POINTS)],
            OURS,
        ),
        (bayes, ["ParameterImportancePlot"], OURS[:1]),
        (terminated, ["ParameterImportancePlot"], OURS),
        (
            convex,
            ["last suboptimality/relative against rho", "last suboptimality/relative against lr"],
            ["suboptimality/relative: mean and std over seeds", "distance/relative: mean and std over seeds"],
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_kind_of_sweep_has_its_panels(
    kind: Callable[[Path], RunSet], first: list[str], curves: list[str], tmp_path: Path
) -> None:
    pulled = kind(tmp_path)
    sections = Panels(pulled).sections()
    assert set(first) <= set(titles({"": sections["Robustness and stability"]}))
    assert titles({"": sections["Training curves"]}) == curves
    assert ("step size gamma" in titles(sections)) is (len(pulled.runs) > 0)
    found = definition(workspace(pulled, "lab", "p"))
    again = ws.Workspace._from_model(internal.View.model_validate(found))
    assert [len(section.panels) for section in again.sections] == [len(panels) for panels in sections.values()]


def test_what_varies_alone_is_an_axis(tmp_path: Path) -> None:
    against = titles({"": Panels(options(tmp_path)).against_fields()})
    assert against == [f"{LAST} over the sweep"], "one radius is no axis"


def test_an_option_is_one_field_of_the_config(tmp_path: Path) -> None:
    """Our runs have it under its whole name: the client would look for `hidden` below `model_options`."""
    panels = Panels(options(tmp_path))
    text = json.dumps(definition(workspace(options(tmp_path / "again"), "lab", "p")))
    assert "config:model_options.hidden.value" in text and "model_options.value" not in text
    assert panels.fields == ["model_options.hidden.value"]


def test_a_convex_problem_is_shown_in_logarithms(tmp_path: Path) -> None:
    assert all(panel.log_y for panel in Panels(convex(tmp_path / "convex")).curves())
    assert not any(panel.log_y for panel in Panels(grid(tmp_path / "grid")).curves())


def test_the_metrics_that_a_task_declares_are_shown(tmp_path: Path) -> None:
    from dataclasses import replace

    pulled = sweep(tmp_path, by_lr)
    runs = pulled.runs.assign(**{"last/test/mae": 0.25, "last/val/mae": None})
    directions = {"test/mae": "minimize", "val/mae": "minimize"}
    declared = replace(pulled, runs=runs, protocol=replace(pulled.protocol, directions=directions))
    shown = [panel.y[0] for panel in Panels(declared).curves()]
    assert shown == ["test/top1", "test/mae", "train/loss"], "what no run has logged is left out"


def test_runs_of_a_project_that_is_not_ours_are_grouped_by_their_fields(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    pulled = pull(ADDRESS, cache=tmp_path, **MAPPED)  # type: ignore[arg-type]
    panels = Panels(pulled)
    assert not panels.has_groups and panels.axis == "Step"
    assert set(panels.fields) == {"optimizer.value.radius", "optimizer.value.name", "lr.value"}
    section = definition(workspace(pulled, "lab", "p"))["spec"]["section"]
    runs = section["runSets"][0]
    assert {key["name"] for key in runs["grouping"]} == set(panels.fields)
    (filtered,) = runs["filters"]["filters"]
    assert filtered["op"] == "NIN" and summary_id("p") in filtered["value"], "a report's plots are no run of it"
    assert "config:optimizer.value.radius" in json.dumps(section)
    assert "summary:val_loss" in json.dumps(section)


def test_our_runs_have_their_groups_wherever_they_come_from(wandb_server: Wandb, tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    wandb_server.load("p", as_runs(Store(str(tmp_path)), "made"))
    there = pull(f"{ADDRESS}/made", store=tmp_path / "none", cache=tmp_path / "cache", tuned="lr")
    assert Panels(pulled).has_groups and Panels(there).has_groups
    assert (place_of(there), tag_of(there.protocol), source_of(there.protocol)) == (
        ("lab", "p"), "made", f"{ADDRESS}/made",
    )  # fmt: skip
    assert (tag_of(pulled.protocol), source_of(pulled.protocol)) == ("made", "made")
    assert [item.key.name for item in filters_of(there.protocol).items] == ["Tags"]


def test_panels_leave_out_the_seeds_that_have_tuned(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    rule = replace(pulled.protocol, roles=Protocol(tune_on=[0, 1], report_on=[2]))
    tags, seeds = filters_of(rule).items
    assert (tags.key.name, seeds.key.name, seeds.op, seeds.value) == ("Tags", "seed", "NIN", [0, 1])


def test_an_id_follows_from_the_name() -> None:
    ids = {fixed_id(kind, name) for kind in ("dashboard", "report") for name in ("a", "b")}
    assert len(ids) == 4 and all(len(one) == 11 and one.isalnum() for one in ids)
    assert fixed_id("dashboard", "made") == fixed_id("dashboard", "made")
