"""Pulls from W&B: only what has changed is fetched, and what has arrived is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import wandb

from polysweep.analysis.data import wandb_api as project
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, a_run, foreign, ids

pytestmark = pytest.mark.usefixtures("fresh_client")


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


def test_a_running_run_that_disagrees_with_its_count_stops_nobody(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [a_run("a", [{"acc": 0.5}], {"seed": 0}), a_run("b", [{"acc": 0.5}], {"seed": 1}, lost=2, complete=False)]
    wandb_server.load("p", runs)
    assert pull(ADDRESS, cache=tmp_path, metric="acc").runs["outcome"].tolist() == ["finished", "running"]


def test_a_wrong_request_does_not_replace_a_good_one(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    with pytest.raises(UserError, match="--metric: 'test/top1' was logged by no run"):
        pull(ADDRESS, cache=tmp_path)
    with pytest.raises(UserError, match="has not been pulled"):
        pull(ADDRESS, cache=tmp_path, refresh=False)
    before = wandb_server.dump()["requests"]["Histories"]
    good = pull(ADDRESS, cache=tmp_path, **MAPPED)
    assert wandb_server.dump()["requests"]["Histories"] == before, "what had arrived was kept"
    with pytest.raises(UserError, match="--tuned: no run has the config field 'lrr'"):
        pull(ADDRESS, cache=tmp_path, tuned=["lrr"])
    assert pull(ADDRESS, cache=tmp_path, refresh=False).protocol == good.protocol
    assert pull(ADDRESS, cache=tmp_path).protocol == good.protocol


def test_what_was_not_pulled_is_said(run_here: Callable[..., Any]) -> None:
    done = run_here("table", ADDRESS)
    assert (
        done.returncode == 2 and done.stderr == f"error: {ADDRESS} has not been pulled; run: polysweep pull {ADDRESS}\n"
    )


def test_a_count_that_disagrees_is_loud_and_what_has_arrived_is_kept(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", [a_run("a", [{"acc": 0.5}], {"seed": 0}), a_run("b", [{"acc": 0.5}], {"seed": 1}, lost=2)])
    for _ in range(2):
        with pytest.raises(
            UserError, match=r"of 1 runs not every history row has arrived that the server counts \(b\)"
        ):
            pull(ADDRESS, cache=tmp_path, metric="acc")
    with pytest.raises(UserError, match="not every history row has arrived"):
        pull(ADDRESS, cache=tmp_path, refresh=False)
    before = wandb_server.dump()["requests"]["Histories"]
    wandb_server.load("p", [a_run("b", [{"acc": 0.5}] * 3, {"seed": 1})])
    assert len(pull(ADDRESS, cache=tmp_path).history) == 4
    assert wandb_server.dump()["requests"]["Histories"] == before + 1, "only the run that was short"


def test_a_second_pull_fetches_only_what_has_changed(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [a_run(f"r{i}", [{"acc": 0.1 * i}] * 3, {"seed": i}, created="2026-01-01") for i in range(5)]
    wandb_server.load("p", runs)
    pull(ADDRESS, cache=tmp_path, metric="acc")
    before = wandb_server.dump()["requests"]
    assert len(pull(ADDRESS, cache=tmp_path).history) == 15
    after = wandb_server.dump()["requests"]
    assert after["Histories"] == before["Histories"] and after["Runs"] == before["Runs"] + 1
    grown = a_run("r3", [{"acc": 0.1 * 3}] * 3 + [{"acc": 0.9}], {"seed": 3}, created="2026-01-01")
    rewritten = [
        a_run("r4", [{"acc": 0.7}] * 3, {"seed": 4}, created="2026-01-02"),
        a_run("r2", [{"acc": 0.6}] * 3, {"seed": 2}, created="2026-01-01"),
        a_run("r1", [{"acc": 0.5}] * 5, {"seed": 1}, created="2026-01-01"),
    ]
    wandb_server.load("p", [grown, *rewritten, a_run("r9", [{"acc": 0.2}], {"seed": 9})])
    pulled = pull(ADDRESS, cache=tmp_path)
    by_run = {name: group.tolist() for name, group in pulled.history.groupby("trial_id")["acc"]}
    assert by_run["r3"] == [0.1 * 3] * 3 + [0.9] and by_run["r2"] == [0.6] * 3 and by_run["r1"] == [0.5] * 5
    assert by_run["r4"] == [0.7] * 3 and by_run["r9"] == [0.2] and by_run["r0"] == [0.0] * 3
    assert pull(ADDRESS, cache=tmp_path, refresh=False).history.equals(pulled.history)


def test_a_run_that_has_gone_from_the_server_goes_from_the_cache(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", [a_run(f"r{i}", [{"acc": 0.1 * i}], {"seed": i}) for i in range(3)])
    pull(ADDRESS, cache=tmp_path, metric="acc")
    wandb.Api(timeout=30).run("lab/p/r1").delete()
    pulled = pull(ADDRESS, cache=tmp_path)
    assert sorted(ids(pulled)) == ["r0", "r2"] and sorted(set(pulled.history["trial_id"])) == ["r0", "r2"]
