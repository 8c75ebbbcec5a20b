"""The W&B workspace view: against the client library's own model, and the loopback server as far as that goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wandb_workspaces.workspaces as ws

from polysweep.analysis.report.wandb_dashboard import definition, save, workspace
from polysweep.analysis.report.wandb_panels import fixed_id
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import SPEC, as_runs, by_lr, sweep

pytestmark = pytest.mark.usefixtures("fresh_client")


def panels(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The kinds and titles of the panels of a definition."""
    sections = found["spec"]["section"]["panelBankConfig"]["sections"]
    return [(panel["viewType"], panel["config"]["chartTitle"]) for section in sections for panel in section["panels"]]


def test_the_view_has_the_panels_of_the_sweep(tmp_path: Path) -> None:
    found = definition(workspace(sweep(tmp_path, by_lr), "lab", "p"))
    assert panels(found) == [
        ("Scatter Plot", "last test/top1 against rho"),
        ("Scatter Plot", "last test/top1 against lr"),
        ("Parallel Coordinates Plot", "last test/top1 over the sweep"),
        ("Run History Line Plot", "test/top1: mean and std over seeds"),
        ("Run History Line Plot", "train/loss: mean and std over seeds"),
        ("Run History Line Plot", "step size gamma"),
        ("Run History Line Plot", "gamma/cap_share of the steps"),
        ("Run History Line Plot", "gamma/zero_share of the steps"),
        ("Run History Line Plot", "ascent gain f(e) - f(x)"),
    ]
    assert (found["entity"], found["project"], found["displayName"]) == ("lab", "p", "polysweep: made")
    assert "made" in json.dumps(found["spec"]["section"]["runSets"][0]["filters"]), "only the runs with the sweep's tag"


def test_the_clients_own_model_reads_it_back(tmp_path: Path) -> None:
    from wandb_workspaces.workspaces import internal

    found = definition(workspace(sweep(tmp_path, by_lr), "lab", "p"))
    again = ws.Workspace._from_model(internal.View.model_validate(found))
    assert [section.name for section in again.sections] == [
        "Robustness and stability", "Training curves", "Step size and ascent gain",
    ]  # fmt: skip
    scatter = again.sections[0].panels[1]
    assert (scatter.x.name, scatter.y.name, scatter.log_x) == ("lr", "test/top1", True)
    assert definition(again)["spec"]["section"]["panelBankConfig"] == found["spec"]["section"]["panelBankConfig"]


def test_the_same_sweep_is_the_same_definition(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    first, second = (definition(workspace(pulled, "lab", "p")) for _ in range(2))
    runs = [one["spec"]["section"].pop("runSets") for one in (first, second)]
    assert first == second and first["name"] == f"nw-{fixed_id('dashboard', 'made')}-v"
    assert runs[0][0]["filters"] == runs[1][0]["filters"]


def test_a_view_is_created_once_and_then_brought_up_to_date(
    wandb_server: Wandb, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "p")
    pulled = sweep(tmp_path, by_lr)
    wandb_server.load("p", as_runs(Store(str(tmp_path)), "made"))
    address, is_new = save(pulled)
    assert is_new and address.endswith(f"/lab/p?nw={fixed_id('dashboard', 'made')}")
    assert save(pulled) == (address, False)
    views = wandb_server.dump()["views"]
    assert len(views) == 1 and views[0].endswith("/2"), "one view, saved twice"
    assert ws.Workspace.from_url(address).sections[0].name == "Robustness and stability"
    assert wandb_server.dump()["unknown"] == []


def test_the_command_creates_updates_and_only_prints(
    wandb_server: Wandb, tmp_path: Path, run_here: Callable[..., Any], monkeypatch: Any
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "p")
    sweep(tmp_path / "store", by_lr)
    printed = run_here("dashboard", "made", "--store", tmp_path / "store", "--dry-run")
    assert printed.returncode == 0 and len(panels(json.loads(printed.stdout))) == 9
    missing = run_here("dashboard", "made", "--store", tmp_path / "store")
    assert missing.returncode == 2 and "dashboard: lab/p: Project `lab/p` not found" in missing.stderr
    wandb_server.load("p", as_runs(Store(str(tmp_path / "store")), "made"))
    for word in ("created", "updated"):
        done = run_here("dashboard", "made", "--store", tmp_path / "store")
        assert done.returncode == 0 and done.stdout.startswith(f"{word} http"), done.stderr


def test_without_a_key_the_dry_run_is_pointed_at(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr, variants=[{"scheduler": {"value": "polyak"}}], tuned=[])
    with pytest.raises(
        UserError, match=r"dashboard: no W&B key; set WANDB_API_KEY, run `wandb login`, or look at --dry-run"
    ):
        save(pulled)
    assert SPEC["name"] == pulled.protocol.name
