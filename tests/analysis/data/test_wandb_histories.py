"""Lines of JSON as columns: numbers, marks and text come back as what they were."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from polysweep.analysis.data.pulling import pull
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
