"""Text of other people's projects: cut where it is long, and safe to print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polysweep.analysis.data.foreign_text import fit, listed, short
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, with_field


@pytest.mark.usefixtures("fresh_client")
def test_a_value_of_a_megabyte_is_cut_and_still_tells_cells_apart(wandb_server: Wandb, tmp_path: Path) -> None:
    long = "x" * 1_000_000
    wandb_server.load("p", with_field("note", long + "a", long + "b", list(range(200_000))))
    selection = select(pull(ADDRESS, cache=tmp_path, metric="acc"))
    notes = selection.cells["note"].tolist()
    assert len(set(notes)) == 3 and max(map(len, notes)) < 120 and "... (1000001 characters, " in notes[1]
    assert len(render_report(selection)) < 2_000_000 and len(render(selection, "csv")) < 5_000
    assert figures(selection)


@pytest.mark.usefixtures("fresh_client")
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


def test_a_long_list_and_a_long_name_are_cut_and_a_short_list_stays_a_list() -> None:
    config = {"a" * 121: [1, 2], "list": ["x" * 120], "deep": {"word": "b\nc"}}
    name, *_ = fitted = fit(config)
    assert name == short("a" * 121) and name.startswith("a" * 60 + "... (121 characters, ")
    assert fitted[name] == [1, 2] and fitted["deep"] == {"word": r"b\nc"}
    assert fitted["list"].startswith('["xxx') and "... (124 characters, " in fitted["list"]


def test_names_are_listed_in_order_up_to_twenty() -> None:
    assert listed(f"r{at:02d}" for at in reversed(range(22))).endswith("r18, r19 and 2 more")
    assert listed(["b", "a"]) == "a, b" and listed([]) == "none"
