"""Projects on W&B that polysweep did not write: their names, states, metrics and filters."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from polysweep.analysis.data.frames import by_name
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, a_run, foreign

pytestmark = pytest.mark.usefixtures("fresh_client")


def test_values_come_back_as_what_they_were(wandb_server: Wandb, tmp_path: Path) -> None:
    rows = [
        {"acc": 0.5, "loss": math.nan, "big": math.inf, "flag": True, "count": 3, "word": "a", "mixed": 1,
         "gone": None},
        {"acc": 1, "loss": 0.25, "big": -math.inf, "flag": False, "count": 2**53 + 1, "word": "NaN", "mixed": "x",
         "image": {"_type": "image-file", "size": 3}},
    ]  # fmt: skip
    config = {"seed": 0, "rho": 1, "on": True, "name": "x", "nothing": None, "deep": {"er": {"k": 2}}, "list": [1, 2]}
    wandb_server.load("p", [a_run("a", rows, config)])
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    history = pulled.history
    assert history["acc"].tolist() == [0.5, 1.0] and history["count"].tolist() == [3, 2**53 + 1]
    assert math.isnan(history["loss"][0]) and history["loss"][0] is not pd.NA and history["loss"][1] == 0.25
    assert history["big"].tolist() == [math.inf, -math.inf] and history["flag"].tolist() == [True, False]
    assert history["word"].tolist() == ["a", "NaN"] and history["mixed"].tolist() == ["1", "x"]
    assert (
        history["gone"].isna().all() and history["image"][0] is pd.NA and json.loads(history["image"][1])["size"] == 3
    )
    run = pulled.runs.iloc[0]
    assert (run["rho"], run["on"], run["name"], run["deep.er.k"], run["list"]) == (1.0, True, "x", 2, "[1, 2]")
    assert isinstance(run["rho"], float) and run["nothing"] is pd.NA


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


def test_what_became_of_a_foreign_run_is_its_state_and_its_last_value(wandb_server: Wandb, tmp_path: Path) -> None:
    states = {
        "ok": a_run("ok", [{"acc": 0.5}], {"seed": 0}),
        "nan": a_run("nan", [{"acc": 0.5}, {"acc": math.nan}], {"seed": 1}),
        "bad": a_run("bad", [{"acc": 0.5}], {"seed": 2}, exit_code=1),
        "on": a_run("on", [{"acc": 0.5}], {"seed": 3}, complete=False),
    }
    wandb_server.load("p", list(states.values()))
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    outcomes = dict(zip(pulled.runs["trial_id"], pulled.runs["outcome"], strict=True))
    assert outcomes == {"ok": "finished", "nan": "diverged", "bad": "failed", "on": "running"}
    assert "| 0.5000 (1/4, 1 diverged, 1 failed, 1 missing)" in render(select(pulled), "markdown")


def test_filters_are_the_servers(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    pulled = pull(ADDRESS, cache=tmp_path, filters={"config.lr": 0.1}, **{**MAPPED, "tuned": []})
    assert len(pulled.runs) == 8 and set(pulled.runs["lr"]) == {0.1}
    assert len(pull(ADDRESS, cache=tmp_path, filters={}).runs) == 16, "another filter fetches anew"


def test_the_direction_of_a_foreign_metric_is_that_of_its_name_or_its_goal(wandb_server: Wandb, tmp_path: Path) -> None:
    rows = {0.1: (0.6, 3.0), 0.2: (0.8, 5.0)}
    runs = [
        a_run(f"{lr}-{seed}", [{"acc": acc + 0.01 * seed, "val/acc": acc, "zeal": zeal}], {"lr": lr, "seed": seed})
        for lr, (acc, zeal) in rows.items()
        for seed in (0, 1)
    ]
    wandb_server.load("p", runs)
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc", tuned=["lr"])
    assert select(pulled, by="val/acc").cells["lr"].tolist() == [0.2]
    unknown = select(pulled, metric="zeal")
    assert unknown.is_maximal is None and "**" not in render(unknown, "markdown"), "nobody knows which is better"
    with pytest.raises(UserError, match="--select-by: whether a larger 'zeal' is better is not known"):
        select(pulled, by="zeal")
    with pytest.raises(UserError, match="--goal: is a larger 'zeal' better"):
        pull(ADDRESS, cache=tmp_path, metric="zeal")
    assert select(pull(ADDRESS, cache=tmp_path, metric="zeal", goal="minimize")).cells["lr"].tolist() == [0.1]
    with pytest.raises(UserError, match="--goal: 'max'; expected maximize or minimize"):
        pull(ADDRESS, cache=tmp_path, metric="acc", goal="max")


@pytest.mark.parametrize(
    ("name", "maximal"),
    [
        ("val/acc", True), ("test_accuracy", True), ("valAcc", True), ("eval/AUC", True), ("mAP", None), ("map", True),
        ("val_loss", False), ("Loss/train", False), ("val_mape", False), ("test.RMSE", False),
        ("mapping_cost", None), ("acceleration", None), ("lossless_ratio", None), ("mapper", None), ("recaller", None),
        ("errand", None), ("top1_error", None), ("score", None), ("précision", None),
    ],
)  # fmt: skip
def test_the_name_of_a_metric_tells_its_direction_by_whole_words(name: str, maximal: bool | None) -> None:
    assert by_name(name) is maximal


def test_a_metric_that_only_begins_like_a_known_one_needs_a_goal(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", [a_run("a", [{"mapping_cost": 0.5}], {"seed": 0})])
    with pytest.raises(UserError, match="--goal: is a larger 'mapping_cost' better"):
        pull(ADDRESS, cache=tmp_path, metric="mapping_cost")
