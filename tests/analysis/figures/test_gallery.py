"""Figures and their API: each draws or says why not, whatever the sweep holds; names, labels, bands and layouts."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from typer.testing import CliRunner

import polysweep
from polysweep.analysis.commands import app
from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.files import NamedFigure, figure_name, image, write
from polysweep.analysis.figures.gallery import figures, save_all
from polysweep.analysis.figures.lines import ends
from polysweep.analysis.figures.plots import plot_heatmap, plot_robustness, plot_scores, plot_stability
from polysweep.analysis.figures.scores import robustness_scores
from polysweep.analysis.figures.styles import looks_of
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.mean_std import mean_std_table, row_verdicts
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.subset import only, parse_only
from polysweep.analysis.tables.wording import axis_label, drawable, in_unicode, shortened, value_text, wrapped
from polysweep.analysis.tables.writers import latex_escaped
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.made import SPEC, by_lr, sweep
from tests.support.project import ROOT

PARAMETERS: dict[str, Any] = SPEC["parameters"]  # type: ignore[assignment]
WITHOUT_RADIUS = {name: value for name, value in PARAMETERS.items() if name != "rho"}
HOSTILE = [r"$\foo{$", "<b>\t\x1b[31m\"'", "x" * 300, "[/]", "a:b=c/d|e", "_hidden"]


@pytest.fixture(scope="module")
def pulled(tmp_path_factory: pytest.TempPathFactory) -> RunSet:
    """The sweep of tests/support/made.py, all of it finished."""
    return sweep(tmp_path_factory.mktemp("plain"), by_lr)


def three(config: TrialConfig) -> list[float]:
    """SAM is ahead of USAM, and SGD behind, which has no radius."""
    return [value + {"sam": 0.02, "usam": 0.0, "sgd": -0.03}[config.optimizer] for value in by_lr(config)]


@pytest.fixture(scope="module")
def optimizers(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    """The example of the docs, in small."""
    text = next(re.finditer(r"```yaml\n(.*?)```", docs(), re.DOTALL))[1]
    spec = SweepSpec.parse(text, "docs/analysis.md")
    assert len(spec.trials) == 3 * (3 + 1 + 2 * 4 * 3 + 2 * 4), "the example of the docs plans"
    changes = yaml.safe_load(text)
    changes["parameters"] |= {
        "model": {"value": "mlp"},
        "epochs": {"value": 3},
        "weight_decay": {"values": [0.0, 5e-4]},
    }
    return select(sweep(tmp_path_factory.mktemp("three"), three, **changes))


@pytest.fixture(scope="module")
def drawn(optimizers: Selection) -> dict[str, NamedFigure]:
    """Its figures, which no test changes."""
    return {one.name: one for one in figures(optimizers)}


def docs() -> str:
    return (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")


def with_field(pulled: RunSet, name: str, change: Callable[[Any], Any]) -> Selection:
    """The sweep with other values of a field, as a W&B project may have them."""
    values = [None if pd.isna(value) else change(value) for value in pulled.runs[name]]
    return select(replace(pulled, runs=pulled.runs.assign(**{name: pd.Series(values, dtype=object)})))


def texts(one: NamedFigure) -> list[str]:
    return [text.get_text() for ax in one.figure.axes for text in ax.texts]


def has_data(one: NamedFigure) -> bool:
    return any(len(line.get_xdata()) for ax in one.figure.axes for line in ax.get_lines()) or any(
        ax.patches or ax.collections for ax in one.figure.axes
    )


# Every figure draws, or says in its place why it is empty.

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


def test_thirty_schedulers_with_names_of_sixty_characters_are_told_apart(pulled: RunSet) -> None:
    names = [f"scheduler_of_a_colleague.with:a=long name No{at:02d}".ljust(60, "y") for at in range(30)]
    base = pulled.runs[pulled.runs["scheduler"] == "polyak"]
    runs = pd.concat(
        [
            base.assign(scheduler=name, trial_id=[f"{at}-{i}" for i in base["trial_id"]])
            for at, name in enumerate(names)
        ],
        ignore_index=True,
    )
    selection = select(replace(pulled, runs=runs))
    assert len({json.dumps(look) for look in looks_of(names).values()}) == 30
    for one in figures(selection, width="column"):
        if one.name in ("robustness", "score"):
            canvas = FigureCanvasAgg(one.figure)
            canvas.draw()
            (legend,) = one.figure.legends
            shown = ["".join(text.get_text().split()) for text in legend.get_texts()]
            assert shown == ["".join(name.split()) for name in names]
            box = legend.get_window_extent(canvas.get_renderer())
            assert box.x0 >= 0 and box.x1 <= one.figure.bbox.x1 and box.y0 >= 0, "the legend is within the figure"
            assert one.figure.axes[0].get_window_extent().height > 100, "and leaves room for the data"


def test_tuned_values_and_radii_that_are_words_stand_side_by_side(pulled: RunSet) -> None:
    selection = with_field(pulled, "lr", lambda lr: {0.01: "small", 0.1: "auto", 1.0: "large"}[lr])
    (one,) = [one for one in figures(selection) if one.name == "stability-lr-scheduler-constant"]
    image(one.figure, "svg")
    (ax,) = one.figure.axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["auto", "large", "small"]
    assert ax.get_lines()[0].get_ydata()[0] == pytest.approx(90.0) and ax.get_xscale() == "linear"
    for change in (
        lambda rho: f"radius {rho}",
        lambda rho: "auto" if rho == 0.1 else rho,
        lambda rho: 10**400 if rho == 0.1 else 2,
    ):
        mixed = next(figures(with_field(pulled, "rho", change)))
        mixed.figure.draw_without_rendering()
        assert len(mixed.figure.axes[0].get_xticks()) == 2


# Values are text.


@pytest.mark.parametrize("value", HOSTILE)
def test_any_value_is_drawn_as_it_is_and_makes_a_safe_name(pulled: RunSet, tmp_path: Path, value: str) -> None:
    selection = with_field(pulled, "scheduler", lambda name: value if name == "polyak" else name)
    one = next(figures(selection, width="column"))
    image(one.figure, "svg")
    labels = [text.get_text() for text in one.figure.legends[0].get_texts()]
    assert len(labels) == 2 and not any(label.startswith("_") for label in labels), "a legend hides such a label"
    alone = figures(only(selection, {"scheduler": [value]}), by="scheduler")
    path, _ = write([next(alone)], tmp_path, ["svg"])
    names = [figure_name("robustness", {"scheduler": other}) for other in (value, value + "y", "polyak")]
    assert len(set(names)) == 3
    for name in (*names, path.stem):
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name)


def test_a_value_of_a_megabyte_is_drawn_by_its_ends(pulled: RunSet) -> None:
    selection = with_field(pulled, "scheduler", lambda name: "y" * 1_000_000 if name == "polyak" else name)
    one = next(iter(figures(selection)))
    image(one.figure, "svg")
    assert max(len(text.get_text()) for text in one.figure.legends[0].get_texts()) < 100


def test_long_values_that_differ_in_their_middle_stay_two() -> None:
    one, other = ("a" * 100 + middle + "b" * 100 for middle in "xy")
    assert shortened(one) != shortened(other) and len(shortened(one)) <= 80
    assert drawable("$a$ \x1b") == r"\$a\$ \x1b" and drawable("_x") == " _x"
    assert [value_text(value) for value in (0.0, 5e-4, 1.0, 0.1 + 0.2, None)] == [
        "0",
        "0.0005",
        "1",
        "0.30000000000000004",
        "-",
    ]


def test_no_two_figures_are_one_file(tmp_path: Path) -> None:
    data = pd.DataFrame({"x": [1]})
    same = [NamedFigure(name, Figure(figsize=(1, 1)), data, "") for name in ("score", "Score", "score")]
    assert [path.name for path in write(same, tmp_path, ["png"])] == [
        "score.png", "score.csv", "Score-2.png", "Score-2.csv", "score-3.png", "score-3.csv",
    ]  # fmt: skip


def test_latex_prints_the_signs_that_old_font_encodings_lack() -> None:
    assert latex_escaped("a<b>c|d") == r"a\textless{}b\textgreater{}c\textbar{}d"


def test_a_latex_head_is_in_words(optimizers: Selection) -> None:
    text = render(optimizers, "latex")
    assert r"\caption{optimizers (weight decay 0, optimizer sgd): " in text and "0.0," not in text


# Labels, bands, ticks, titles.


def test_axes_say_in_words_what_they_show(drawn: dict[str, NamedFigure]) -> None:
    assert [axis_label(name) for name in ("test/top1", "val/top5", "train/loss", "mine/acc_$")] == [
        "test accuracy, top-1 (%)", "validation accuracy, top-5 (%)", "training loss", r"mine/acc_\$",
    ]  # fmt: skip
    assert in_unicode(axis_label("distance/relative")) == "‖x - x*‖² / ‖x⁰ - x*‖²"
    found = {name: one.figure.axes[0] for name, one in drawn.items()}
    ax = found["robustness-weight_decay-0-optimizer-sam"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"radius $\rho$", "test accuracy, top-1 (%)")
    stability = found["stability-lr-scheduler-constant-weight_decay-0-optimizer-sam"]
    assert stability.get_xlabel() == r"step size $\gamma$"
    assert found["gamma-weight_decay-0-optimizer-sgd"].get_ylabel() == r"step size $\gamma$"


def test_bands_are_named_and_stay_within_what_an_accuracy_can_be(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda c: [0.999 if c.seed else 0.9]))
    for one in figures(selection):
        if one.name.startswith(("robustness", "stability", "curves")):
            for band in (band for ax in one.figure.axes for band in ax.collections):
                heights = band.get_paths()[0].vertices[:, 1]
                assert heights.max() == 100 and heights.min() > 0, one.name
            assert "band of ± std" in one.figure.get_suptitle().replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ")
            assert "the band is ± one sample std, cut off at 0 and 100 %" in one.caption
    low, high = ends(np.array([1.0]), np.array([3.0]), "test/loss")
    assert (low[0], high[0]) == (-2.0, 4.0), "a loss is not cut"


def test_every_panel_has_ticks_with_numbers(tmp_path: Path) -> None:
    radii = {"parameters": {**PARAMETERS, "rho": {"values": [0.05, 0.1, 0.4]}}}
    selection = select(sweep(tmp_path, by_lr, **radii, seeds=1))
    for width in ("page", "column"):
        for one in figures(selection, width=width):
            FigureCanvasAgg(one.figure).draw()
            names = [ax.yaxis.label for ax in one.figure.axes if ax.get_ylabel()] + [one.figure._supylabel]  # type: ignore[attr-defined]
            sides = [text.get_window_extent() for text in names if text is not None]
            assert not any(a.overlaps(b) for a, b in itertools.combinations(sides, 2)), f"{one.name}: two names of axes"
            for ax in (ax for ax in one.figure.axes if ax.get_visible() and one.name != "score"):
                assert any(label.get_text() for label in ax.get_yticklabels()), f"{one.name}: no numbers at the left"
                if is_at_foot(ax):
                    labels = [label for label in ax.get_xticklabels() if label.get_text() and label.get_visible()]
                    boxes = [label.get_window_extent() for label in labels]
                    assert boxes, f"{one.name}: no numbers at the foot"
                    assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes)), f"{one.name}: over each other"


def is_at_foot(ax: Axes) -> bool:
    """Whether no other panel stands below one."""
    own = ax.get_subplotspec()
    others = [other.get_subplotspec() for other in ax.figure.axes if other.get_visible()]
    return own is not None and not any(
        other.rowspan.start == own.rowspan.start + 1 and other.colspan.start == own.colspan.start
        for other in others
        if other is not None
    )


def test_texts_of_the_score_figure_do_not_lie_over_each_other(
    optimizers: Selection, drawn: dict[str, NamedFigure]
) -> None:
    small = only(optimizers, {"scheduler": "constant", "optimizer": "sam,usam"})
    for one, groups in ((drawn["score"], 4), (list(figures(small, width="column"))[-1], 4)):
        FigureCanvasAgg(one.figure).draw()
        (ax,) = one.figure.axes
        tall = [label.get_window_extent() for label in ax.get_yticklabels() if label.get_text()]
        assert len(tall) == groups
        boxes = [*tall, ax.xaxis.label.get_window_extent(), one.figure._suptitle.get_window_extent()]  # type: ignore[attr-defined]
        boxes += [legend.get_window_extent() for legend in one.figure.legends]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_titles_break_between_words_and_only_words_without_room_within() -> None:
    text = (
        "made, weight decay 0: best epoch, mean and band of n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}3, selected on test"
    )
    for longest in (12, 20, 36):
        lines = wrapped(text, longest).split("\n")
        assert " ".join(lines) == text and all(len(line) <= longest for line in lines)
    assert wrapped("a_rather_long-name.of/one:word 0.0005", 12).split("\n") == [
        "a_rather_",
        "long-name.",
        "of/one:word",
        "0.0005",
    ]
    assert all(len(line) <= 12 for line in wrapped("x" * 30 + " a_rather_long-name.of/one:word", 12).split("\n"))
    assert r"\$" in wrapped(drawable("x" * 11 + "$" + "y" * 11), 12), "an escape stays whole"


# One figure over all optimizers, and --cols, --by, --only.


def test_sam_stands_beside_usam_beside_sgd(drawn: dict[str, NamedFigure]) -> None:
    found = [one for name, one in drawn.items() if name.startswith("optimizers")]
    assert [one.name for one in found] == ["optimizers-weight_decay-0", "optimizers-weight_decay-0.0005"]
    panels = found[0].figure.axes
    assert [ax.get_title() for ax in panels] == ["constant", "polyak"]
    for ax in panels:
        lines = {line.get_label(): line for line in ax.get_lines()}
        assert {"sgd", "usam", "sam"} <= set(lines)
        assert len(set(lines["sgd"].get_ydata())) == 1, "SGD has no radius: a level"
        assert lines["sam"].get_ydata()[0] > lines["usam"].get_ydata()[0] > lines["sgd"].get_ydata()[0]
    colors = [{line.get_label(): line.get_color() for line in ax.get_lines()}["sam"] for ax in panels]
    assert colors[0] == colors[1] and "multiple of the gradient" in found[0].caption


def test_lines_figures_and_cells_are_asked_for_as_those_of_tables(optimizers: Selection) -> None:
    sam = only(optimizers, {"optimizer": "sam,usam", "weight_decay": 0})
    assert len(sam.cells) == 2 * 2 * 4 and len(sam.candidates) == 2 * 4 * (3 + 1)
    one = next(figures(sam, cols=["optimizer", "scheduler"]))
    assert one.name == "robustness-weight_decay-0", "no other figure over all optimizers"
    labels = [text.get_text() for text in one.figure.legends[0].get_texts()]
    assert sorted(labels) == ["sam, constant", "sam, polyak", "usam, constant", "usam, polyak"]
    assert next(figures(sam, by="optimizer")).name == "robustness-optimizer-usam-weight_decay-0"
    assert len(only(optimizers, {"rho": "-"}).cells) == 4, "cells to which the radius does not apply"
    with pytest.raises(UserError, match=r"--cols: 'rho' is the horizontal axis of the plots; --only rho=VALUE draws"):
        figures(optimizers, cols="rho")
    for wanted, message in (
        ({"optimizer": "adam"}, r"--only: no cell has optimizer=adam; .*expected one of sam, sgd, usam"),
        ({"lr": 0.1}, r"--only: 'lr' is tuned: each cell has its chosen value"),
        ({"optimizer": "sgd", "rho": 0.1}, r"--only: no cell has all of optimizer=sgd rho=0.1"),
    ):
        with pytest.raises(UserError, match=message):
            only(optimizers, wanted)
    for texts_, message in ((["a"], "expected FIELD=VALUE"), (["a=1", "a=2"], "'a' is given twice; .* a=1,...")):
        with pytest.raises(UserError, match=message):
            parse_only(texts_)


def test_the_commands_take_cols_by_and_only(tmp_path: Path, optimizers: Selection) -> None:
    source = optimizers.pulled.protocol.source
    shared = ["optimizers", "--store", source, "--cache", str(tmp_path / "cache"), "--only", "weight_decay=0"]
    table = CliRunner().invoke(app, ["table", *shared, "--only", "rho=0.1", "--cols", "optimizer,scheduler"])
    assert table.exit_code == 0 and "| rho | usam constant " in table.output and "0.0005" not in table.output
    options = [
        "--only",
        "optimizer=sam",
        "--only",
        "scheduler=polyak",
        "--only",
        "rho=0.1,0.4",
        "--kinds",
        "svg",
        "--out",
        str(tmp_path / "out"),
    ]
    plot = CliRunner().invoke(app, ["plot", *shared, *options, "--by", "scheduler"])
    assert plot.exit_code == 0, plot.output
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert "robustness-scheduler-polyak-weight_decay-0-optimizer-sam.svg" in written
    assert not any("0.0005" in name or "usam" in name for name in written)


# From Python.


def test_rows_of_several_tables_are_refused_with_the_fields_that_differ(optimizers: Selection) -> None:
    cells, metric = optimizers.cells, optimizers.metric
    with_radius = cells[cells["rho"].notna()]
    for call in (
        lambda: plot_robustness(with_radius, metric, Figure().subplots()),
        lambda: plot_heatmap(with_radius, metric, Figure().subplots(), "scheduler", "rho"),
        lambda: plot_stability(optimizers.candidates, "lr", metric, Figure().subplots()),
    ):
        with pytest.raises(UserError, match=r"rows share .*; they differ in .*weight_decay"):
            call()
    with pytest.raises(UserError, match=r"cells of several tables: two are .* with weight_decay=0\.0 and 0\.0005"):
        row_verdicts(optimizers, cells)
    with pytest.raises(UserError, match="cells of several tables"):
        mean_std_table(optimizers, cells)
    lines = ["optimizer", "scheduler", "weight_decay"]
    ax = plot_robustness(cells, metric, Figure().subplots(), lines=lines)
    assert len(ax.get_legend_handles_labels()[1]) == 12, "named as lines they may stand together"
    for _, table in subtables(optimizers):
        assert all(verdict.best != verdict.runner_up for verdict in row_verdicts(optimizers, table))


def test_cells_without_a_radius_are_points_and_beside_others_levels(optimizers: Selection) -> None:
    zero = optimizers.cells[optimizers.cells["weight_decay"] == 0]
    ax = plot_robustness(zero[zero["optimizer"] == "sgd"], "test/top1", Figure().subplots())
    assert [label.get_text() for label in ax.get_xticklabels()] == ["constant", "polyak"]
    heights = [box.lines[0].get_ydata()[0] for box in ax.containers]
    assert heights == pytest.approx([88.0, 93.0])


def test_a_text_is_one_field_wherever_fields_are_asked_for(pulled: RunSet, tmp_path: Path) -> None:
    selection = select(pulled)
    assert Layout.of(selection, "scheduler", "rho") == Layout.of(selection, ["scheduler"], ["rho"])
    assert mean_std_table(selection, rows="scheduler", cols="rho").index.name == "scheduler"
    (verdict, _) = row_verdicts(selection, selection.cells)
    assert verdict.text("rho", "test/top1").startswith("rho 0.1: polyak over constant")
    assert set(pulled.columns("test/top1")) == {"trial_id", "test/top1"}
    assert {path.suffix for path in save_all(selection, tmp_path, kinds="svg")} == {".svg", ".csv"}
    ax = plot_robustness(selection.cells, "test/top1", Figure().subplots(), lines="scheduler")
    assert ax.get_legend_handles_labels()[1] == ["constant", "polyak"]


def test_plots_make_axes_where_none_are_given(pulled: RunSet) -> None:
    selection = select(pulled)
    history = pulled.history.merge(pulled.runs[["trial_id", "scheduler"]], on="trial_id")
    polyak = selection.cells.assign(gamma_b=1.0)[selection.cells["scheduler"] == "polyak"]
    candidates = selection.candidates[selection.candidates["scheduler"] == "constant"]
    for ax in (
        plot_robustness(selection.cells, "test/top1"),
        plot_stability(candidates, "lr", "test/top1"),
        plot_heatmap(polyak, "test/top1"),
        plot_scores(robustness_scores(selection), "test/top1"),
        polysweep.plot_curves(history, "test/top1"),
        polysweep.plot_gamma(history),
        polysweep.plot_shares(history),
    ):
        assert ax.figure.number in plt.get_fignums() and ax.has_data()  # type: ignore[union-attr]
    empty = selection.cells.iloc[:0]
    for ax in (
        plot_robustness(empty, "test/top1"),
        plot_scores(pd.DataFrame(), "test/top1"),
        plot_heatmap(empty.assign(gamma_b=[]), "x"),
    ):
        assert ax.texts
    plt.close("all")


def test_a_generator_that_is_broken_off_leaves_the_settings_of_matplotlib(pulled: RunSet) -> None:
    before = dict(mpl.rcParams)
    generator = figures(select(pulled))
    next(generator)
    assert dict(mpl.rcParams) == before, "also between two figures"
    mpl.rcParams["lines.linewidth"] = before["lines.linewidth"] + 1
    try:
        next(generator)
        assert mpl.rcParams["lines.linewidth"] == before["lines.linewidth"] + 1, "what the user sets in between stays"
    finally:
        mpl.rcParams["lines.linewidth"] = before["lines.linewidth"]
    generator.close()  # type: ignore[attr-defined]
    assert dict(mpl.rcParams) == before


def test_importing_the_plots_changes_no_setting_of_matplotlib() -> None:
    code = (
        "import matplotlib as mpl; mpl.use('svg'); before = dict(mpl.rcParams)\n"
        "import polysweep.analysis.report.html, polysweep.analysis.theory.figures, seaborn\n"
        "assert dict(mpl.rcParams) == before and mpl.get_backend() == 'svg'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_figures_of_the_report_have_captions_in_words(optimizers: Selection) -> None:
    page = render_report(only(optimizers, {"weight_decay": "0", "scheduler": "polyak", "optimizer": ["sam", "sgd"]}))
    captions = re.findall(r"<figcaption>(.*?) <a", page)
    assert captions[0].startswith(
        "Test accuracy, top-1 (%) against the radius \N{GREEK SMALL LETTER RHO}, one panel per"
    )
    assert not any("$" in caption or "=" in caption.replace("n = ", "") for caption in captions)
    assert 'aria-label="candidates"><table class="sortable fits">' in page, "its cells wrap: nothing is cut"
