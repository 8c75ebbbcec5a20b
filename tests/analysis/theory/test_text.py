"""The page that `polysweep theory` prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polysweep import pull, select
from polysweep.analysis.theory.checks import methods
from polysweep.analysis.theory.lines import lines_of
from polysweep.analysis.theory.text import render_theory
from polysweep.sweeps.store.store import Store


def test_an_undecided_method_stays_on_the_page(small: Path, tmp_path: Path) -> None:
    """A failed seed of one of two step sizes: it has a row and a sentence, and nothing of its problem is bold."""
    pulled = pull("theory-small", store=Store(str(small)), cache=tmp_path)
    at = pulled.runs.index[(pulled.runs["lr"] == 10.0) & (pulled.runs["seed"] == 0)]
    outcomes = pulled.runs["outcome"].mask(pulled.runs.index.isin(at), "failed")
    values = {name: pulled.runs[name].mask(pulled.runs.index.isin(at)) for name in pulled.runs if "st/" in name}
    fresh = lines_of(select(replace(pulled, runs=pulled.runs.assign(outcome=outcomes, **values)), epoch="last"))
    (row,) = methods(fresh)[methods(fresh)["method"] == "lightsam-i rho=0.1"].to_dict("records")
    assert row["n"] == 0 and row["undecided"].startswith("lr=10.0 ")
    assert not methods(fresh)[methods(fresh)["problem"] == row["problem"]]["marked"].any()
    page = render_theory(fresh, "small")
    assert (
        "lightsam-i rho=0.1: undecided, 1 run without a result could change the choice (1 failed, 5 diverged)" in page
    )
    assert "| undecided: lr=10.0 " in page
