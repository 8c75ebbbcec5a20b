"""Figures of a sweep: each draws or says why not, whatever the sweep holds; and values are text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from typer.testing import CliRunner

from polysweep.analysis.commands import app
from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.files import NamedFigure, figure_name, image, write
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.figures.styles import looks_of
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.subset import only, parse_only
from polysweep.analysis.tables.wording import drawable, shortened, value_text
from polysweep.analysis.tables.writers import latex_escaped
from polysweep.trainer.errors import UserError
from tests.support.drawn import PARAMETERS, has_data, texts, with_field
from tests.support.drawn import drawn as drawn
from tests.support.drawn import optimizers as optimizers
from tests.support.drawn import pulled as pulled
from tests.support.made import by_lr, sweep

HOSTILE = [r"$\foo{$", "<b>\t\x1b[31m\"'", "x" * 300, "[/]", "a:b=c/d|e", "_hidden"]


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


def test_figures_of_the_report_have_captions_in_words(optimizers: Selection) -> None:
    page = render_report(only(optimizers, {"weight_decay": "0", "scheduler": "polyak", "optimizer": ["sam", "sgd"]}))
    captions = re.findall(r"<figcaption>(.*?) <a", page)
    assert captions[0].startswith(
        "Test accuracy, top-1 (%) against the radius \N{GREEK SMALL LETTER RHO}, one panel per"
    )
    assert not any("$" in caption or "=" in caption.replace("n = ", "") for caption in captions)
    assert 'aria-label="candidates"><table class="sortable fits">' in page, "its cells wrap: nothing is cut"
