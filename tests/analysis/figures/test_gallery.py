"""Figures of a sweep: each draws or says why not, whatever the sweep holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.report.html import render_report
from polysweep.analysis.report.wandb_dashboard import definition, workspace
from polysweep.analysis.tables.choice import select
from tests.support.drawn import PARAMETERS, has_data, texts
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, CAPS, a_run, by_lr, capped, sweep

OUTCOMES: dict[str, tuple[Any, str]] = {
    "no trial finished": (lambda c: "failed" if c.seed == 0 else "new", "no finished trial: 4 failed, 8 missing"),
    "one finished": (
        lambda c: by_lr(c) if (c.rho, c.seed, c.lr) == (0.1, 0, 0.1) else "new",
        "no mean yet: runs without a result could change the choice",
    ),
    "all diverged": (lambda _: "diverged", "no finished trial: 12 diverged"),
    "a tuned scheduler has none": (lambda c: by_lr(c) if c.scheduler == "polyak" else "new", ""),
    "all stopped": (lambda _: "failed", "no finished trial: 12 stopped"),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_figures_of_a_sweep_without_results_draw_or_say_why_not(tmp_path: Path, case: str) -> None:
    score, reason = OUTCOMES[case]
    made = sweep(tmp_path, score)
    if case == "all stopped":
        made = replace(made, runs=made.runs.assign(outcome="stopped"))
    found = {one.name: one for one in figures(select(made), width="column")}
    assert set(found) == {"robustness", "curves", "gamma", "stability-lr-scheduler-constant", "score"} | (
        {"ascent-gain"} if case == "a tuned scheduler has none" else set()
    )
    for one in found.values():
        one.figure.draw_without_rendering()
        assert has_data(one) or texts(one), f"{one.name} is empty and does not say why"
    robustness = " ".join(texts(found["robustness"])).replace("\n", " ")
    assert robustness == reason
    if case == "a tuned scheduler has none":
        said = " ".join(texts(found["stability-lr-scheduler-constant"])).replace("\n", " ")
        assert said == "no finished trial: 18 missing"


@pytest.mark.parametrize(
    "changes", [{"seeds": 1}, {"parameters": {**PARAMETERS, "rho": {"value": 0.1}}}], ids=["one seed", "one radius"]
)
def test_figures_of_the_smallest_sweeps_draw(tmp_path: Path, changes: dict[str, Any]) -> None:
    found = list(figures(select(sweep(tmp_path, by_lr, **changes))))
    for one in found:
        one.figure.draw_without_rendering()
        assert has_data(one) and not texts(one), one.name


@pytest.mark.usefixtures("fresh_client")
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


def test_every_figure_has_its_data_and_says_what_it_is(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, capped, **CAPS))
    drawn = {one.name: one for one in figures(selection)}
    assert {name.split("-optimizer")[0] for name in drawn} >= {
        "robustness", "curves", "gamma", "ascent-gain", "stability-lr-scheduler-constant",
        "stability-gamma_b-scheduler-polyak", "heatmap-scheduler-polyak", "score", "optimizers-gamma_b-1",
    }  # fmt: skip
    heat = drawn["heatmap-scheduler-polyak-optimizer-usam"]
    texts = [text.get_text() for text in heat.figure.axes[0].texts]
    assert "diverged" in texts and "95.00\n2/3" in texts and "92.00" in texts
    stability = drawn["stability-gamma_b-scheduler-polyak-optimizer-sam"].figure.axes[0]
    assert stability.get_xscale() == "log"
    crosses = [line for line in stability.get_lines() if line.get_marker() == "x" and len(line.get_xdata())]
    assert {tuple(line.get_xdata()) for line in crosses} == {(10.0,)} and len(crosses) == 2
    line = next(line for line in stability.get_lines() if line.get_label() == r"$\rho$ = 0.1")
    rows = heat.data[heat.data["rho"] == 0.1].sort_values("gamma_b")
    assert list(line.get_ydata()) == pytest.approx(list(rows["mean"] * 100)), "figure and table are of one frame"
    assert all(len(one.data) for one in drawn.values())
