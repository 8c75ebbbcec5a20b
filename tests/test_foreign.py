"""Projects on W&B that polysweep did not write: their names, types, states and metrics."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from conftest import Wandb
from made import ADDRESS, MAPPED, SPEC, a_run, foreign

from analysis import project
from analysis.dashboard import definition, workspace
from analysis.figures import figures
from analysis.formats import render
from analysis.pull import pull
from analysis.report import render_report
from analysis.select import select
from trainer.registry import UserError

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


def test_config_fields_named_like_our_columns_are_kept_apart(wandb_server: Wandb, tmp_path: Path) -> None:
    names = ("epoch", "n", "value", "score", "rank")
    runs = [
        a_run(f"{which}-{seed}", [{"acc": 0.5 + 0.1 * which}], {**dict.fromkeys(names, which), "seed": seed})
        for which in (1, 2)
        for seed in (0, 1)
    ]
    wandb_server.load("p", runs)
    selection = select(pull(ADDRESS, cache=tmp_path, metric="acc"))
    assert selection.cells["config.epoch"].tolist() == [1, 2] and selection.cells["n"].tolist() == [2, 2]
    assert render(selection, "markdown").count("0.6000") == 1 and "config.n = 2" in render(selection, "markdown")


def test_a_field_that_only_some_runs_have_makes_tables_not_a_crash(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [
        a_run(
            f"{drop}-{seed}",
            [{"acc": 0.5 + (drop or 0)}],
            {"seed": seed, **({} if drop is None else {"dropout": drop})},
        )
        for drop in (None, 0.1, 0.2)
        for seed in (0, 1)
    ]
    wandb_server.load("p", runs)
    text = render(select(pull(ADDRESS, cache=tmp_path, metric="acc")), "markdown")
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("p ")] == [
        "p (dropout = -)", "p (dropout = 0.1)", "p (dropout = 0.2)",
    ]  # fmt: skip


def test_metrics_that_are_logged_by_several_calls_are_found(wandb_server: Wandb, tmp_path: Path) -> None:
    rows = [{"acc": 0.5}, {"loss": 2.0}, {"acc": 0.7}, {"loss": 1.0}, {"acc": 0.6}, {"loss": 1.5}]
    wandb_server.load("p", [a_run("a", rows, {"seed": 0})])
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    run = pulled.runs.iloc[0]
    assert (run["best/acc"], run["last/acc"], run["last/loss"], run["best/loss"]) == (0.7, 0.6, 1.5, 2.0)
    assert "0.7000 (n = 1)" in render(select(pulled), "markdown").replace("**", "")


def test_a_column_that_is_a_mark_here_and_a_number_there_is_text(
    wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "RUNS_PER_REQUEST", 1)
    rows = [{"acc": 0.5, "flag": True}, {"acc": 0.5, "flag": 0.25}]
    wandb_server.load("p", [a_run(f"r{at}", [row], {"seed": at}) for at, row in enumerate(rows)])
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    assert pulled.history["flag"].tolist() == ["true", "0.25"]
    with pytest.raises(UserError, match="--metric: 'flag' is no number; expected one of acc"):
        pull(ADDRESS, cache=tmp_path, metric="flag")


def test_an_infinite_result_has_no_std(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [a_run(f"r{s}", [{"acc": 0.5, "loss": math.inf if s else 1.0}], {"seed": s}) for s in (0, 1)]
    wandb_server.load("p", runs)
    chosen = select(pull(ADDRESS, cache=tmp_path, metric="acc"), metric="loss").cells.iloc[0]
    assert chosen["mean"] == math.inf and math.isnan(chosen["std"])


def test_a_project_without_schedulers_is_drawn_and_reported(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [
        a_run(f"{rho}-{s}", [{"acc": 0.9 - rho / 10 + 0.01 * s * rho}], {"rho": rho, "seed": s})
        for rho in (0.1, 0.2)
        for s in (0, 1)
    ]
    wandb_server.load("p", runs)
    selection = select(pull(ADDRESS, cache=tmp_path, metric="acc"))
    drawn = {one.name: one for one in figures(selection)}
    assert [line.get_label() for line in drawn["robustness"].figure.axes[0].get_lines()] == ["all runs"]
    assert drawn["score"].data["drop"].tolist() == [pytest.approx(0.01 - 0.0005)]
    assert "<h2" in render_report(selection)
    view = definition(workspace(selection.pulled, "lab", "p"))
    assert "tags" not in json.dumps(view["spec"]["section"]["runSets"][0]["filters"]), "no tag was asked for"


def test_a_running_run_that_disagrees_with_its_count_stops_nobody(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [a_run("a", [{"acc": 0.5}], {"seed": 0}), a_run("b", [{"acc": 0.5}], {"seed": 1}, lost=2, complete=False)]
    wandb_server.load("p", runs)
    assert pull(ADDRESS, cache=tmp_path, metric="acc").runs["outcome"].tolist() == ["finished", "running"]


def test_a_spec_and_a_protocol_beside_it_are_refused(tmp_path: Path) -> None:
    spec = tmp_path / "made.yaml"
    spec.write_text(json.dumps(SPEC))
    with pytest.raises(UserError, match="--spec says what is tuned and what selects"):
        pull(ADDRESS, cache=tmp_path, spec=spec, metric="acc")


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
