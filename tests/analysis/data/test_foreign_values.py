"""What other people's projects hold: values of any kind, and runs that are none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.data import foreign_fields as fields
from polysweep.analysis.data import wandb_api as project
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
        (['{"_step": 0, "acc": 1}', '{"_step": "one", "acc": 1}'], "its last _step is 'one', which is not a number"),
        (['{"_step": "zero", "acc": 0.5}', '{"_step": 1, "acc": 0.5}'], "its _step is not a number"),
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
    with pytest.raises(UserError, match="--metric: 'flag' is not a number; expected one of acc"):
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
