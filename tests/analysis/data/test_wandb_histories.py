"""Lines of JSON as columns: numbers, marks and text come back as what they were."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.data.wandb_histories import lines_of, parsed
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, a_run


@pytest.mark.usefixtures("fresh_client")
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


def test_numbers_that_the_server_spells_as_text_are_numbers_but_not_beside_words() -> None:
    numbers = parsed(pa.array(['{"a": 0.5, "b": "NaN"}', '{"a": "-Infinity"}']))
    assert numbers["a"].to_pylist() == [0.5, -math.inf] and math.isnan(numbers["b"][0].as_py())
    assert parsed(pa.array(['{"a": "Infinity"}', '{"a": "-Infinity"}']))["a"].to_pylist() == [math.inf, -math.inf]
    assert parsed(pa.array(['{"a": "x"}', '{"a": "NaN"}']))["a"].to_pylist() == ["x", "NaN"]
    assert parsed(pa.array([], pa.string())).num_rows == 0


def test_a_run_or_a_project_that_has_gone_meanwhile_has_no_lines() -> None:
    rows = ['{"a": 1}', '{"a": 2}']
    for project, expected in (({"r0": {"history": rows}, "r1": None}, [rows, []]), (None, [[], []])):
        lines = lines_of(json.dumps({"project": project}).encode(), 2)
        assert [one.to_pylist() for one in lines] == expected
