"""Runs from W&B: complete whatever the server does, typed, incremental; and the tables of the Store, bit for bit."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import wandb

from polysweep.analysis.data import wandb_api as project
from polysweep.analysis.data.frames import counts
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.data.wandb_api import Project
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, SPEC, a_run, as_runs, by_lr, foreign, sweep

pytestmark = pytest.mark.usefixtures("fresh_client")


def ids(pulled: Any) -> list[str]:
    found: list[str] = pulled.runs["trial_id"].tolist()
    return found


# The same table from W&B as from the Store.


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


# Every run once, every row.


@pytest.mark.parametrize("there", [0, 5])
def test_runs_that_are_counted_and_do_not_come_are_an_error(
    there: int, wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one page too."""
    monkeypatch.setattr(project, "PASSES", 3)
    wandb_server.load("p", [a_run(f"r{i}", [{"acc": 0.5}], {"seed": i}) for i in range(there)])
    wandb_server.miscount(1)
    with pytest.raises(
        UserError, match=f"{ADDRESS}: the server's run count does not match the runs it lists, after 3 attempts"
    ):
        pull(ADDRESS, cache=tmp_path, metric="acc")
    wandb_server.recover()
    if there:
        assert len(ids(pull(ADDRESS, cache=tmp_path, metric="acc"))) == there


def test_1200_runs_arrive_as_1200_however_their_pages_are_ordered(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [a_run(f"r{i:04d}", [{"acc": i / 1200}, {"acc": 0.5}], {"seed": i, "rho": 0.1}) for i in range(1200)]
    wandb_server.load("p", runs)
    wandb_server.shuffle(3)
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc", goal="maximize")
    assert sorted(ids(pulled)) == [f"r{i:04d}" for i in range(1200)]
    assert len(pulled.history) == 2400 and set(pulled.history["trial_id"].value_counts()) == {2}
    firsts = pulled.history.drop_duplicates("trial_id").set_index("trial_id")["acc"]
    assert all(firsts[f"r{i:04d}"] == i / 1200 for i in range(1200))


def test_runs_that_come_and_go_between_pages_are_counted(
    wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of the first page is deleted before the second is asked for, so that all others move up by one."""
    wandb_server.load("p", [a_run(f"r{i}", [{"acc": 0.5}], {"seed": i}) for i in range(9)])
    monkeypatch.setattr(project, "RUNS_PER_PAGE", 3)
    listed, pages = Project._pages, 0

    def disturbed(self: Project, *arguments: Any, **options: Any) -> Iterator[Any]:
        nonlocal pages
        for page in listed(self, *arguments, **options):
            pages += 1
            if pages == 1:
                wandb.Api(timeout=30).run("lab/p/r1").delete()
                wandb_server.load("p", [a_run("late", [{"acc": 0.5}], {"seed": 99})])
            yield page

    monkeypatch.setattr(Project, "_pages", disturbed)
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    assert sorted(ids(pulled)) == sorted(["late", *(f"r{i}" for i in range(9) if i != 1)])


def test_a_long_history_is_never_sampled(wandb_server: Wandb, tmp_path: Path) -> None:
    """The server gives at most 1,500 samples; 2,345 rows with gaps in their steps come in windows."""
    rows = [{"_step": 3 * at, "acc": at / 2345} for at in range(2345)]
    run = a_run("long", [], {"seed": 0}) | {"history": [json.dumps(row) for row in rows]}
    wandb_server.load("p", [run, a_run("short", [{"acc": 0.1}], {"seed": 1})])
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    assert pulled.history["acc"].tolist() == [*(row["acc"] for row in rows), 0.1]


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


def test_429_is_waited_for_as_long_as_it_says(
    wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb_server.load("p", [a_run(f"r{i}", [{"acc": 0.5}], {"seed": i}) for i in range(6)])
    monkeypatch.setattr(project, "RUNS_PER_REQUEST", 2)
    monkeypatch.setattr(project, "REQUESTS_AT_ONCE", 1)
    wandb_server.fail(429, retry_after=2, every=2, only="Histories")
    assert len(pull(ADDRESS, cache=tmp_path, metric="acc").history) == 6
    asked = [(when, struck) for when, kind, struck in wandb_server.dump()["log"] if kind == "Histories"]
    assert sum(struck for _, struck in asked) >= 2
    for (first, struck), (second, _) in itertools.pairwise(asked):
        assert not struck or second - first >= 1.9


# Incremental.


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


# Mistakes.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wandb://lab"], "'wandb://lab' is no W&B address; expected wandb://ENTITY/PROJECT"),
        (["wandb://lab/nowhere"], "wandb://lab/nowhere: no such project; lab has: empty, p"),
        (
            ["wandb://nobody/p"],
            "wandb://nobody/p: no such project, and none of 'nobody' can be seen; the key is of 'lab'",
        ),
        (["wandb://lab/p/no-tag"], "no run matches; lab/p has 16 runs; states: finished; tags: none; config: "),
        ([ADDRESS, "--filter", '{"config.lr": 7}'], "no run matches; lab/p has 16 runs"),
        ([ADDRESS, "--filter", "lr=7"], "--filter: not JSON"),
        ([ADDRESS, "--filter", "[1]"], "--filter: '[1]' is no JSON object"),
        ([ADDRESS, "--map", "seed"], "--map: 'seed'; expected OURS=THEIRS"),
        ([ADDRESS, "--map", "seed=a", "--map", "seed=b"], "--map: 'seed=b': seed is mapped twice"),
        ([ADDRESS], "--metric: 'test/top1' was logged by no run; expected one of acc, val_loss"),
        ([ADDRESS, "--metric", "val_los"], "--metric: 'val_los' was logged by no run; did you mean 'val_loss'?"),
        (
            [ADDRESS, "--metric", "acc", "--tuned", "lrr"],
            "--tuned: no run has the config field 'lrr'; did you mean 'lr'?",
        ),
        ([ADDRESS, "--metric", "acc", "--map", "rho=raduis"], "--map: no run has 'raduis'"),
        ([ADDRESS, "--metric", "acc", "--map", "acc=val_loss"], "the runs have 'acc' too, and it would be lost"),
        ([ADDRESS, "--metric", "acc", "--goal", "up"], "--goal: 'up'; expected maximize or minimize"),
    ],
)
def test_a_mistake_is_named(arguments: list[str], message: str, wandb_server: Wandb, run: Callable[..., Any]) -> None:
    wandb_server.load("p", foreign())
    wandb_server.load("empty", [])
    done = run("pull", *arguments, preexec_fn=None)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert message in done.stderr and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_no_key_is_said(run: Callable[..., Any]) -> None:
    done = run("pull", ADDRESS)
    assert done.returncode == 2
    assert done.stderr == f"error: {ADDRESS}: no W&B key; set WANDB_API_KEY, or run `wandb login`\n"


def test_what_was_not_pulled_is_said(run: Callable[..., Any]) -> None:
    done = run("table", ADDRESS)
    assert (
        done.returncode == 2 and done.stderr == f"error: {ADDRESS} has not been pulled; run: polysweep pull {ADDRESS}\n"
    )


def test_two_runs_of_a_seed_and_seeds_that_nobody_named_are_said(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    unnamed = {
        **MAPPED,
        "mapping": {"rho": "optimizer.radius", "scheduler": "optimizer.name"},
        "ignore": ["host", "random_seed"],
    }
    with pytest.raises(UserError, match=r"2 runs of seed None: .*; --map seed=FIELD names the field that has the seed"):
        select(pull(ADDRESS, cache=tmp_path, **unnamed))


def test_the_commands_work_on_what_was_pulled(wandb_server: Wandb, run: Callable[..., Any], tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    done = run(
        "pull", ADDRESS, "--map", "rho=optimizer.radius", "--map", "scheduler=optimizer.name",
        "--map", "seed=random_seed", "--metric", "val_loss", "--tuned", "lr", "--ignore", "host", preexec_fn=None,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{ADDRESS}: 16 runs: 16 finished; 48 history rows",
        "cells: scheduler, rho; tuned: lr; selected by val_loss (minimize)",
        f"polysweep table {ADDRESS} shows them",
    ]
    for command in (["table"], ["plot", "--out", "plots"], ["report", "--out", "r.html"], ["dashboard", "--dry-run"]):
        done = run(command[0], ADDRESS, *command[1:])  # without a network
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").exists() and (tmp_path / "plots" / "robustness.png").exists()


def test_a_damaged_cache_is_said_and_made_anew(wandb_server: Wandb, tmp_path: Path, capsys: Any) -> None:
    wandb_server.load("p", foreign())
    cache = tmp_path / "cache"
    before = pull(ADDRESS, cache=cache, **MAPPED)
    (folder,) = cache.glob("*")
    for pattern in ("runs.parquet", "history-*.parquet"):
        (victim,) = folder.glob(pattern)
        victim.write_bytes(victim.read_bytes()[:-40])
        after = pull(ADDRESS, cache=cache, **MAPPED)
        assert f"warning: the cache {folder} is damaged and is rebuilt" in capsys.readouterr().err
        pd.testing.assert_frame_equal(before.runs, after.runs)
        assert before.history.equals(after.history)


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
