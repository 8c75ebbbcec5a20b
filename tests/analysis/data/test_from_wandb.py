"""The tables of a sweep from W&B: those of its Store, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from polysweep.analysis.data import wandb_api as project
from polysweep.analysis.data.frames import counts
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, a_run, as_runs, by_lr, ids, sweep

pytestmark = pytest.mark.usefixtures("fresh_client")


# The same table from W&B as from the Store.


@pytest.mark.long  # the report's test does the same with runs that are made
def test_a_sweeps_table_from_wandb_is_that_of_its_store(
    spec_file: Callable[..., Path],
    start: Callable[..., Any],
    run: Callable[..., Any],
    wandb_server: Wandb,
    tmp_path: Path,
) -> None:
    """Bit for bit, through the real client, after pulls during the sweep, with 429s and pages in another order."""
    store, cache, address = tmp_path / "store", tmp_path / "cache", "wandb://lab/polysweep/small"
    spec = spec_file()
    process = start("launch", spec, "--store", store, "--wandb", "online", isolated=False)
    pulls, partial = 0, 0
    project.RUNS_PER_PAGE, whole = 3, project.RUNS_PER_PAGE
    try:
        while process.poll() is None:
            wandb_server.fail(429, retry_after=0.05, every=5, shuffle=pulls)
            try:
                pulled = pull(address, spec=spec, cache=cache)
            except UserError as error:
                assert "no such project" in str(error) or "none of its" in str(error) or "no run matches" in str(error)
            else:
                pulls += 1
                partial += not (pulled.runs["outcome"] == "finished").all()
        assert process.returncode == 0, process.stdout.read()
        wandb_server.recover()
        assert run("sync", "small", "--store", store, preexec_fn=None).returncode == 0
        wandb_server.fail(429, retry_after=0.05, every=3, shuffle=7)
        pulled = pull(address, spec=spec, cache=cache)
    finally:
        project.RUNS_PER_PAGE = whole
    assert pulls > 1 and partial, "it was pulled while it ran"
    ours = pull("small", store=str(store), cache=cache)
    for options in ({}, {"epoch": "last"}, {"metric": "test/loss"}, {"by": "test/loss", "metric": "test/top5"}):
        theirs, own = select(pulled, **options), select(ours, **options)
        pd.testing.assert_frame_equal(theirs.cells, own.cells, check_exact=True)
        assert render(theirs, "csv") == render(own, "csv")
    for column in [name for name in ours.history if name != "partial"]:
        assert pulled.history[column].tolist() == ours.history[column].tolist() or ours.history[column].isna().all()
    pd.testing.assert_frame_equal(
        pull(address, cache=tmp_path / "fresh", spec=spec).runs, pulled.runs, check_exact=True
    )
    wandb_server.recover()
    assert wandb_server.dump()["unknown"] == []


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


def test_interrupted_runs_are_missing_as_in_the_store(wandb_server: Wandb, tmp_path: Path) -> None:
    """Whether W&B calls them preempted, crashed, or by the word of a version before: failed."""
    made = sweep(tmp_path, lambda c: "running" if c.seed < 2 and c.rho == 0.1 else by_lr(c))
    store = Store(str(tmp_path))
    runs = as_runs(store, "made")
    going = [run for run in runs if run["preempting"]]
    assert len(going) == 8
    for run in going[::3]:
        run |= {"complete": False, "silent": True}
    for run in going[1::3]:
        run |= {"preempting": False}
    wandb_server.load("p", runs)
    pulled = pull(f"{ADDRESS}/made", store=store, cache=tmp_path / "cache")
    assert set(pulled.runs["run.state"]) == {"finished", "crashed", "failed", "preempted"}
    assert pulled.runs["outcome"].tolist() == made.runs["outcome"].tolist()
    assert "8 interrupted" in counts(pulled)
    text = render(select(pulled), "markdown")
    assert text == render(select(made), "markdown") and "missing" in text and "failed" not in text


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
