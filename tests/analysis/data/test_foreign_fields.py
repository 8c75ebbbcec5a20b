"""Projects on W&B that polysweep did not write: their names, types, states and metrics."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from polysweep.analysis.data import foreign_fields as fields
from polysweep.analysis.data import wandb_api as project
from polysweep.analysis.data.frames import by_name
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.report.html import render_report
from polysweep.analysis.report.wandb_dashboard import definition, workspace
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.trainer.config import OPTION_FIELDS, TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, SPEC, a_run, foreign

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


# What other people's projects hold.


def with_field(name: str, *values: Any) -> list[dict[str, Any]]:
    """Two seeds of each value of a field."""
    return [
        a_run(f"r{at}-{seed}", [{"acc": 0.5 + 0.1 * at + 0.01 * seed}], {name: value, "seed": seed})
        for at, value in enumerate(values)
        for seed in (0, 1)
    ]


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


def test_a_value_of_a_megabyte_is_cut_and_still_tells_cells_apart(wandb_server: Wandb, tmp_path: Path) -> None:
    long = "x" * 1_000_000
    wandb_server.load("p", with_field("note", long + "a", long + "b", list(range(200_000))))
    selection = select(pull(ADDRESS, cache=tmp_path, metric="acc"))
    notes = selection.cells["note"].tolist()
    assert len(set(notes)) == 3 and max(map(len, notes)) < 120 and "... (1000001 characters, " in notes[1]
    assert len(render_report(selection)) < 2_000_000 and len(render(selection, "csv")) < 5_000
    assert figures(selection)


def test_control_characters_are_written_out(wandb_server: Wandb, tmp_path: Path) -> None:
    """A terminal would obey them: in names, values, tags, columns and states, and in what is said of mistakes."""
    runs = with_field("na\x1b[31mme", "\x1b[2J", "a\nb")
    for run in runs:
        run["history"] = [run["history"][0].replace('"acc"', '"acc", "bell\\u0007": 1, "acc"')[:-1] + "}"]
        run["attributes"] = {"displayName": "\x1b]0;x\x07", "tags": ["t\x1b"]}
    for run in runs:
        run["history"] = [json.dumps({"_step": 0, "acc": 0.5, "bell\x07": 1})]
    wandb_server.load("p", runs)
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    text = render(select(pulled), "markdown") + render(select(pulled), "csv") + " ".join(pulled.runs.columns)
    assert r"na\x1b[31mme" in text and r"\x1b[2J" in text and r"a\nb" in text and r"last/bell\x07" in text
    assert all(one.isprintable() or one == "\n" for one in text) and pulled.runs["run.name"][0] == r"\x1b]0;x\x07"
    with pytest.raises(UserError) as error:
        pull(f"{ADDRESS}/nothing", cache=tmp_path)
    assert str(error.value).isprintable() and r"t\x1b" in str(error.value)
    with pytest.raises(UserError) as error:
        pull(ADDRESS, cache=tmp_path, metric="accc")
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("history", "why"),
    [
        (['{"_step": 0, "acc": 0.5}', '{"_step": "one", "acc": 0.5}'], "its last _step is 'one', which is no number"),
        (['{"_step": "zero", "acc": 0.5}', '{"_step": 1, "acc": 0.5}'], "its _step is no number"),
    ],
)
def test_a_step_that_is_text_is_named_with_a_way_to_go_on(
    history: list[str], why: str, wandb_server: Wandb, tmp_path: Path
) -> None:
    wandb_server.load("p", [a_run("a", [], {"seed": 0}, history=history), *foreign()])
    with pytest.raises(UserError) as error:
        pull(ADDRESS, cache=tmp_path, **MAPPED)
    without = {"name": {"$ne": "a"}}
    assert f"{ADDRESS}: run a cannot be read: {why}; --filter '{json.dumps(without)}' leaves it out" == str(error.value)
    assert len(pull(ADDRESS, cache=tmp_path, filters=without, **MAPPED).runs) == 16


@pytest.mark.parametrize("broken", [{"tags": 3}, {"displayName": 3}])
def test_a_run_that_is_no_run_is_named(broken: dict[str, Any], wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", [a_run("a", [{"acc": 0.5}], {"seed": 0}, attributes=broken), *foreign()])
    with pytest.raises(UserError, match="run a cannot be read: "):
        pull(ADDRESS, cache=tmp_path, **MAPPED)


def test_an_infinite_value_is_never_the_best(wandb_server: Wandb, tmp_path: Path) -> None:
    """Neither of a run's epochs, nor of a row's cells, nor of a cell's candidates."""
    scores = {("a", 1): (0.5, 0.6), ("a", 2): (math.inf, 0.7), ("b", 1): (0.9, 0.8)}
    runs = [
        a_run(f"{which}{lr}{seed}", [{"acc": first + seed / 50, "gain": math.inf if which == "a" else 1.0},
                                             {"acc": last + seed / 50}],
              {"scheduler": which, "lr": lr, "rho": 0.1, "seed": seed})
        for (which, lr), (first, last) in scores.items()
        for seed in (0, 1)
    ]  # fmt: skip
    wandb_server.load("p", runs)
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc", tuned=["lr"])
    chosen = select(pulled)
    assert chosen.cells["mean"].tolist() == pytest.approx([0.71, 0.91]) and chosen.cells["lr"].tolist() == [2, 1]
    text = render(chosen, "markdown")
    assert "**0.9100 +- 0.0141**" in text and "**0.7100" not in text
    gains = pull(ADDRESS, cache=tmp_path, metric="gain", goal="maximize", tuned=["lr"])
    text = render(select(gains, epoch="last"), "markdown")
    assert "**inf" not in text and "**1.0000 +- 0.0000**" in text


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


def test_the_fields_that_are_floats_are_those_of_a_config() -> None:
    floats = {name for name, field in TrialConfig.model_fields.items() if "float" in str(field.annotation)}
    assert floats - {"precision", *OPTION_FIELDS} == fields.FLOATS
