"""Layouts and formats of tables, and the plots: what is drawn, and that nothing is cropped."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from typer.testing import CliRunner

import polysweep
from polysweep.analysis.commands import app
from polysweep.analysis.figures.gallery import figures, save_all
from polysweep.analysis.figures.scores import robustness_scores
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.layout import Layout
from polysweep.analysis.tables.mean_std import mean_std_table
from polysweep.analysis.tables.statistics import Sample, mean_interval
from polysweep.analysis.tables.subset import only
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.made import CAPS, by_lr, capped, sweep

# Tables.


def test_any_fields_may_be_rows_and_columns(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr, **CAPS))
    layout = Layout.of(selection, ["optimizer", "rho"], ["scheduler", "gamma_b"])
    text = render(selection, "markdown", layout)
    assert text.splitlines()[2:4] == [
        "| optimizer | rho | constant -        | polyak 0.5        | polyak 1.0        | polyak 10.0       |",
        "|-----------|-----|-------------------|-------------------|-------------------|-------------------|",
    ]
    assert "| usam      | 0.1 | **90.00 +- 1.00** | **95.00 +- 1.00** |" in text, "24 pairs: not to be told apart"
    by_cap = Layout.of(selection, ["gamma_b"], ["rho"])
    assert (by_cap.rows, by_cap.cols, by_cap.by) == (("gamma_b",), ("rho",), ("scheduler", "optimizer"))
    frame = mean_std_table(selection, rows=["rho"], cols=["scheduler", "gamma_b"], by=["optimizer"])
    assert frame.index.names == ["optimizer", "rho"] and frame.columns.names == ["scheduler", "gamma_b"]
    assert frame.loc[("sam", "0.4"), ("polyak", "1.0")] == "92.00 +- 1.00"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rows": ["rhoo"]},
            "--rows: unknown field 'rhoo'; did you mean 'rho'? expected one of gamma_b, optimizer, rho",
        ),
        ({"rows": ["rho"], "cols": ["rho"]}, "--cols: 'rho' is in --rows already"),
        ({"by": "model"}, "--by: 'model' does not vary: it is mlp in every trial; expected one of gamma_b, optimizer"),
        ({"rows": "lr"}, "--rows: 'lr' is tuned: each cell has its chosen value; expected one of gamma_b, optimizer"),
        ({"cols": ["seed"]}, "--cols: 'seed' is what the means are over; expected one of gamma_b, optimizer"),
    ],
)
def test_a_wrong_layout_is_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    selection = select(sweep(tmp_path, by_lr, **CAPS))
    with pytest.raises(UserError, match=re.escape(message)):
        Layout.of(selection, **options)


def test_html_is_a_table_with_headers(tmp_path: Path) -> None:
    text = render(select(sweep(tmp_path, by_lr)), "html")
    assert text.count("<table>") == 1 and '<th scope="row">0.1</th>' in text
    assert "<td><b>95.00 ± 1.00</b></td>" in text and "at the best epoch" in text


def test_csv_has_the_choice_its_budget_and_intervals(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr))
    frame = polysweep.long_table(selection)
    row = frame[frame["scheduler"] == "constant"].iloc[0]
    assert (row["candidates"], row["budget"], row["runner_up"], row["margin"]) == (3, 9, "lr=1.0", pytest.approx(10))
    expected = mean_interval(Sample(0.9, 0.01, 3), candidates=3)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(100 * end for end in expected))
    assert row["ci_low"] < 100 * (0.9 - 4.303 * 0.01 / math.sqrt(3)), "longer down than Student's for one candidate"
    assert "90.00 +- 1.00 [86.42, 91.99]" in render(selection, "markdown", intervals=True)
    assert r"$90.00_{\pm 1.00}$ [86.42, 91.99]" in render(selection, "latex", intervals=True)
    assert frame["test_accuracy_mean"].tolist() == pytest.approx([90, 87, 95, 92])
    loss = polysweep.long_table(select(selection.pulled, metric="test/loss"))
    assert "test_accuracy_mean" not in loss and loss["mean"].tolist() == pytest.approx([0.1, 0.13, 0.05, 0.08])


def test_hostile_names_stay_text_in_latex(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr, name="a_b-50.x")
    text = render(select(pulled), "latex")
    assert r"a\_b-50.x" in text and not re.search(r"(?<!\\)_(?!\{)", text.split(r"\label")[0].split("%")[0])


# Plots.


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


def test_a_robustness_score_is_the_drop_from_the_smallest_radius_to_the_largest(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.scheduler == "polyak" and config.rho == 0.4:
            return "diverged"
        return [0.9 - (config.rho or 0) * (0.1 + 0.01 * config.seed)]

    found = robustness_scores(select(sweep(tmp_path, score))).set_index("scheduler")
    constant = found.loc["constant"]
    assert constant["drop"] == pytest.approx(0.3 * 0.11) and (constant["smallest_rho"], constant["n"]) == (0.1, 3)
    assert constant["low"] < constant["drop"] < constant["high"]
    assert found.loc["polyak", "diverged"] and pd.isna(found.loc["polyak", "drop"])
    rising = robustness_scores(select(sweep(tmp_path / "up", lambda c: [0.5 + (c.rho or 0) + 0.01 * c.seed])))
    assert (rising["drop"] < 0).all(), "not chosen by the results, so it may be negative"


@pytest.mark.parametrize("width", ["page", "column"])
def test_nothing_is_cropped_and_no_text_overlaps_the_frame(tmp_path: Path, width: str) -> None:
    """Every text lies within the saved image, and no figure is wider than what it is made for."""
    selection = only(select(sweep(tmp_path, capped, **CAPS)), {"optimizer": "sam", "gamma_b": "-,0.5,10"})
    for drawn in figures(selection, width=width):
        figure = drawn.figure
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        box = figure.get_tightbbox(renderer)
        assert box.width <= {"page": 6.75, "column": 3.35}[width] * 1.12, drawn.name
        legend = figure.legends[0].get_window_extent(renderer) if figure.legends else None
        for ax in figure.axes:
            if legend is not None and ax.get_visible():
                assert not legend.overlaps(ax.get_window_extent(renderer)), f"{drawn.name}: the legend hides data"


def test_pdf_is_reproducible_and_a_wrong_kind_is_named(tmp_path: Path) -> None:
    selection = only(select(sweep(tmp_path / "s", by_lr)), {"scheduler": "polyak", "rho": 0.1})
    first, second = (save_all(selection, tmp_path / name, kinds=["pdf"], width="column") for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert first[0].read_bytes().startswith(b"%PDF")
    with pytest.raises(UserError, match="--kinds: 'gif'; expected one of pdf, png, svg"):
        save_all(selection, tmp_path / "c", kinds=["gif"])
    with pytest.raises(UserError, match="--width: 'wide'; expected one of column, page, screen"):
        save_all(selection, tmp_path / "c", width="wide")


def test_lines_differ_in_grey(tmp_path: Path) -> None:
    from polysweep.analysis.figures.styles import looks_of

    found = looks_of(["constant", "cosine", "polyak"])
    assert len({look["marker"] for look in found.values()}) == len({look["linestyle"] for look in found.values()}) == 3


# Commands and names.


def test_the_public_names_are_there() -> None:
    assert {"pull", "select", "mean_std_table", "plot_robustness"} <= set(dir(polysweep))
    assert all(getattr(polysweep, name) is not None for name in polysweep.__all__)


def test_the_commands_take_layouts_metrics_and_published_numbers(
    tmp_path: Path, run_here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(tmp_path / "store", by_lr, **CAPS)
    monkeypatch.chdir(tmp_path)

    def of(*arguments: str) -> Any:
        return CliRunner().invoke(app, [arguments[0], "made", "--store", "store", *arguments[1:]])

    shown = of("table", "--rows", "optimizer,rho", "--cols", "scheduler,gamma_b", "--epoch", "last")
    assert shown.exit_code == 0 and "| optimizer | rho | constant -" in shown.stdout
    assert "warning: lr: in 4 of 16 cells the chosen value is at the edge of its grid" in shown.stderr
    for arguments, message in (
        (("table", "--rows", "rhoo"), "--rows: unknown field 'rhoo'; did you mean"),
        (("table", "--select-by", "val/top1"), "--select-by: val/top1 was not measured"),
        (("table", "--only", "rho"), "--only: 'rho'; expected FIELD=VALUE"),
        (("plot", "--out", "p", "--kinds", "gif"), "--kinds: 'gif'"),
        (("plot", "--out", "p", "--by", "rho"), "--by: 'rho' is the horizontal axis"),
        (("compare", "--published", "cifar"), "none of its cells is in made"),
        (("plot", "--out", "p", "--published", "cifar"), "--published cifar: none of its tables is in made"),
        (("compare", "--published", "nothing.csv"), "--published: no file 'nothing.csv'"),
        (("compare", "--published", "cifar", "--where", "gamma_b"), "--where: 'gamma_b'; expected FIELD=VALUE"),
        (("report", "--out", "r.html", "--published", "no.csv"), "--published: no file 'no.csv'"),
    ):
        refused = of(*arguments).exception
        assert isinstance(refused, UserError) and message in str(refused) and "\n" not in str(refused)
    done = run_here("table", "made", "--store", tmp_path / "store", "--format", "pdf")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "--format: 'pdf'; expected one of" in done.stderr
