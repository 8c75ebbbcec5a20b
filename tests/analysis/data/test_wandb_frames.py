"""What was fetched from W&B as frames: in order, under our names, as from the Store."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, SPEC, a_run, as_runs, by_lr, foreign, ids, sweep

pytestmark = pytest.mark.usefixtures("fresh_client")


def test_a_project_that_is_not_ours_needs_a_small_mapping(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    pulled = pull(ADDRESS, cache=tmp_path, **MAPPED)
    assert pulled.protocol.cell == ("scheduler", "rho") and pulled.protocol.goal == "minimize"
    selection = select(pulled)
    assert selection.cells["lr"].tolist() == [0.1] * 4 and selection.cells["n"].tolist() == [2] * 4
    first = selection.cells.iloc[0]
    assert (first["rho"], first["scheduler"], first["mean"]) == (0.1, "sam", pytest.approx(0.905))
    assert "| 0.1 | **0.9050 +- 0.0071** | **0.9050 +- 0.0071** |" in render(selection, "markdown")
    again = pull(ADDRESS, cache=tmp_path, refresh=False)
    assert render(select(again), "markdown") == render(selection, "markdown"), "the mapping is kept with the pull"


def test_what_has_not_started_is_new_and_what_was_not_asked_for_is_left_out(
    wandb_server: Wandb, tmp_path: Path
) -> None:
    made = sweep(tmp_path, lambda c: "new" if c.seed == 2 else "diverged" if c.lr == 1.0 else by_lr(c))
    store = Store(str(tmp_path))
    wandb_server.load("p", [*as_runs(store, "made"), a_run("other", [{"test/top1": 1.0}])])
    pulled = pull(f"{ADDRESS}/made", store=store, cache=tmp_path / "cache")
    assert ids(pulled) == ids(made) and pulled.protocol.text == made.protocol.text
    assert render(select(pulled), "markdown") == render(select(made), "markdown")
    assert set(pulled.runs["outcome"]) == {"new", "diverged", "finished"}
    diverged = pulled.runs[pulled.runs["outcome"] == "diverged"]
    assert set(diverged["diverged_step"]) == {9}, "the last step of the epoch in which it diverged"


def test_a_report_from_wandb_is_that_of_its_store(wandb_server: Wandb, tmp_path: Path) -> None:
    """Commit, versions, device, threads and K are in every run's config; its cost is that of its epochs."""
    made = sweep(tmp_path, by_lr)
    store = Store(str(tmp_path))
    wandb_server.load("p", as_runs(store, "made"))
    pulled = pull(f"{ADDRESS}/made", store=store, cache=tmp_path / "cache")
    theirs, ours = (
        re.sub(r"written .* UTC|\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", render_report(select(one))).replace(
            one.protocol.source, "SOURCE"
        )
        for one in (pulled, made)
    )
    assert "c0ffee" in theirs
    assert theirs == ours
    for name in ("commit", "version.torch", "device", "threads", "width", "seconds"):
        pd.testing.assert_series_equal(pulled.runs[name], made.runs[name], check_dtype=False)


def test_where_numbers_come_from_tells_no_cells_apart(wandb_server: Wandb, tmp_path: Path) -> None:
    """Without a spec too: one seed was trained on another commit, in a wider stack."""
    sweep(tmp_path, by_lr)
    store = Store(str(tmp_path))
    runs = as_runs(store, "made")
    for run in runs:
        run["config"]["polysweep"]["value"] |= {"commit": f"c{run['config']['seed']['value']}", "width": 7}
    wandb_server.load("p", runs)
    pulled = pull(ADDRESS, cache=tmp_path / "cache", tuned=["lr"])
    assert set(pulled.protocol.cell) == {"rho", "scheduler"}
    assert set(pulled.runs["commit"]) == {"c0", "c1", "c2"} and set(pulled.runs["width"]) == {7}


def test_rows_come_in_the_order_of_values_as_from_the_store(wandb_server: Wandb, tmp_path: Path) -> None:
    """However late a run was made: also where the sweep's spec is not at hand."""
    runs = [
        a_run(f"{rho}-{lr}-{seed}", [{"acc": 0.5 + rho - lr}], {"rho": rho, "lr": lr, "seed": seed}, created=created)
        for created, (rho, lr, seed) in enumerate(
            [(10, 0.1, 1), (2, 0.2, 0), (10, 0.1, 0), (0.5, 0.1, 0), (2, 0.1, 0), (0.5, 0.2, 0), (10, 0.2, 0)]
        )
    ]
    for run in runs:
        run["created"] = f"2026-01-0{run['created'] + 1}"
    wandb_server.load("p", runs)
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc", tuned=["lr"])
    expected = ["0.5-0.1-0", "0.5-0.2-0", "2-0.1-0", "2-0.2-0", "10-0.1-0", "10-0.1-1", "10-0.2-0"]
    assert ids(pulled) == expected and pulled.history["trial_id"].tolist() == expected
    assert pulled.columns(["acc"])["acc"].tolist() == pytest.approx([0.9, 0.8, 2.4, 2.3, 10.4, 10.4, 10.3])
    assert select(pulled).cells["rho"].tolist() == [0.5, 2, 10]
    assert ids(pull(ADDRESS, cache=tmp_path, refresh=False)) == expected


def test_a_spec_of_other_trials_is_refused(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    spec = tmp_path / "made.yaml"
    spec.write_text(json.dumps(SPEC))
    with pytest.raises(UserError, match="none of its 16 runs is a trial of the sweep 'made'"):
        pull(ADDRESS, cache=tmp_path / "c", spec=spec)


def test_runs_of_an_older_version_beside_new_ones_have_one_column(wandb_server: Wandb, tmp_path: Path) -> None:
    """`ascent_gain` was called `sharpness`: a sweep that was extended since has runs with either name."""
    made = sweep(tmp_path / "store", by_lr)
    store = Store(str(tmp_path / "store"))
    runs = as_runs(store, "made")
    for run in runs[:12]:
        run["history"] = [row.replace('"ascent_gain"', '"sharpness"') for row in run["history"]]
    wandb_server.load("p", runs)
    theirs = pull(f"{ADDRESS}/made", store=store, cache=tmp_path / "cache")
    assert "sharpness" not in theirs.history and theirs.history["ascent_gain"].notna().all()
    assert (
        theirs.columns(["ascent_gain"])["ascent_gain"].tolist() == made.columns(["ascent_gain"])["ascent_gain"].tolist()
    )
