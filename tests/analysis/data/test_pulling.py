"""Mistakes of a pull, and the commands that work on what was pulled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, SPEC, as_runs, by_lr, foreign, sweep

pytestmark = pytest.mark.usefixtures("fresh_client")


# Mistakes.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wandb://lab"], "'wandb://lab' is not a W&B address; expected wandb://ENTITY/PROJECT"),
        (["wandb://lab/nowhere"], "wandb://lab/nowhere: no such project; lab has: empty, p"),
        (
            ["wandb://nobody/p"],
            "wandb://nobody/p: no such project, and none of 'nobody' can be seen; the key is of 'lab'",
        ),
        (["wandb://lab/p/no-tag"], "no run matches; lab/p has 16 runs; states: finished; tags: none; config: "),
        ([ADDRESS, "--filter", '{"config.lr": 7}'], "no run matches; lab/p has 16 runs"),
        ([ADDRESS, "--filter", "lr=7"], "--filter: not JSON"),
        ([ADDRESS, "--filter", "[1]"], "--filter: '[1]' is not a JSON object"),
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
def test_a_mistake_is_named(
    arguments: list[str], message: str, wandb_server: Wandb, run_here: Callable[..., Any]
) -> None:
    wandb_server.load("p", foreign())
    wandb_server.load("empty", [])
    done = run_here("pull", *arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert message in done.stderr and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_no_key_is_said(run_here: Callable[..., Any]) -> None:
    done = run_here("pull", ADDRESS)
    assert done.returncode == 2
    assert done.stderr == f"error: {ADDRESS}: no W&B key; set WANDB_API_KEY, or run `wandb login`\n"


def test_what_was_not_pulled_is_said(run_here: Callable[..., Any]) -> None:
    done = run_here("table", ADDRESS)
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


def test_the_commands_work_on_what_was_pulled(
    wandb_server: Wandb, run_here: Callable[..., Any], tmp_path: Path
) -> None:
    wandb_server.load("p", foreign())
    done = run_here(
        "pull", ADDRESS, "--map", "rho=optimizer.radius", "--map", "scheduler=optimizer.name",
        "--map", "seed=random_seed", "--metric", "val_loss", "--tuned", "lr", "--ignore", "host",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{ADDRESS}: 16 runs: 16 finished; 48 history rows",
        "cells: scheduler, rho; tuned: lr; selected by val_loss (minimize)",
        f"polysweep table {ADDRESS} shows them",
    ]
    wandb_server.fail(500)  # what was pulled needs no server
    for command in (["table"], ["plot", "--out", "plots"], ["report", "--out", "r.html"], ["dashboard", "--dry-run"]):
        done = run_here(command[0], ADDRESS, *command[1:])
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
