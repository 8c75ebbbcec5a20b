"""Fields and outcomes of runs that polysweep did not write."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.data import foreign_fields as fields
from polysweep.analysis.data.frames import counts
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import OPTION_FIELDS, TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, a_run, as_runs, by_lr, sweep, with_field

pytestmark = pytest.mark.usefixtures("fresh_client")


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


def test_a_metric_that_only_begins_like_a_known_one_needs_a_goal(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", [a_run("a", [{"mapping_cost": 0.5}], {"seed": 0})])
    with pytest.raises(UserError, match="--goal: is a larger 'mapping_cost' better"):
        pull(ADDRESS, cache=tmp_path, metric="mapping_cost")


@pytest.mark.parametrize(
    ("field", "values", "rows"),
    [
        ("rho", (0.2, "auto", 0.1), ["0.1", "0.2", "auto"]),
        ("rho", (math.nan, 0.1), ["0.1", "-"]),
        ("rho", (math.nan, 0.1, None), ["-", "0.1", "nan"]),
        ("rho", (math.inf, 0.1), ["0.1", "inf"]),
        ("rho", (10**400, 1), ["1", str(10**400)[:60]]),
        ("rho", ([1, 2], "[1, 2]x"), ["[1, 2]", "[1, 2]x"]),
        ("rho", (True, False), ["False", "True"]),
    ],
    ids=["text", "nan", "nan and none", "inf", "huge", "lists", "marks"],
)
def test_values_of_any_kind_make_a_table_with_a_row_each(
    field: str, values: tuple[Any, ...], rows: list[str], wandb_server: Wandb, tmp_path: Path
) -> None:
    wandb_server.load("p", with_field(field, *values))
    selection = select(pull(ADDRESS, cache=tmp_path, metric="acc"))
    assert selection.cells["n"].tolist() == [2] * len(values), "no cell is split"
    assert render(selection, "csv").count("\n") == len(values)
    lines = [line.split("|")[1].strip() for line in render(selection, "markdown").splitlines() if line.startswith("|")]
    assert [line[:60] for line in lines[2:]] == rows


def test_values_that_are_numbers_and_text_are_reported(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", with_field("rho", 0.2, "auto", 0.1, [1, 2]))
    assert "<h2" in render_report(select(pull(ADDRESS, cache=tmp_path, metric="acc")))


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


def test_the_fields_that_are_floats_are_those_of_a_config() -> None:
    floats = {name for name, field in TrialConfig.model_fields.items() if "float" in str(field.annotation)}
    assert floats - {"precision", *OPTION_FIELDS} == fields.FLOATS


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


def test_runs_with_a_number_of_their_own_each_are_the_points_of_a_search(wandb_server: Wandb, tmp_path: Path) -> None:
    lrs = [0.001 * 1.5**at for at in (5, 3, 11, 0, 8, 2, 9, 1, 7, 4, 10, 6)]
    wandb_server.load(
        "p",
        [a_run(f"r{at}", [{"acc": 0.5 + lr}], {"lr": lr, "act": "ab"[at % 2], "seed": 0}) for at, lr in enumerate(lrs)],
    )
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    assert pulled.protocol.is_search and set(pulled.runs["trial_id"]) == {f"r{at}" for at in range(12)}
    text = render(select(pulled), "markdown")
    assert text.splitlines()[2].startswith("| rank") and "lr: shown: larger is better" in text
    assert not pull(ADDRESS, cache=tmp_path, metric="acc", tuned="lr").protocol.is_search


def test_a_grid_of_few_values_is_no_search() -> None:
    configs = [{"lr": lr, "act": act} for lr in (0.1, 0.2, 0.3, 0.4) for act in "abc"]
    assert not fields.looks_drawn(configs, ["lr", "act"])
    assert not fields.looks_drawn([{"lr": 0.1 * at} for at in range(5)], ["lr"]), "too few to tell"
    assert not fields.looks_drawn([{"folder": f"run-{at}"} for at in range(20)], ["folder"]), "words are not drawn"
