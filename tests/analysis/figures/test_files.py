"""Files of figures: their names, kinds and bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.files import NamedFigure, figure_name, image, write
from polysweep.analysis.figures.gallery import figures, save_all
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.subset import only
from polysweep.trainer.errors import UserError
from tests.support.drawn import NAMES, with_field
from tests.support.made import by_lr, sweep

HOSTILE = [r"$\foo{$", "<b>\t\x1b[31m\"'", "x" * 300, "[/]", "a:b=c/d|e", "_hidden"]


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


def test_no_two_figures_are_one_file(tmp_path: Path) -> None:
    data = pd.DataFrame({"x": [1]})
    same = [NamedFigure(name, Figure(figsize=(1, 1)), data, "") for name in ("score", "Score", "score")]
    assert [path.name for path in write(same, tmp_path, ["png"])] == [
        "score.png", "score.csv", "Score-2.png", "Score-2.csv", "score-3.png", "score-3.csv",
    ]  # fmt: skip


def test_plots_are_written_as_png_and_svg_and_are_reproducible(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path / "store", by_lr))
    paths = save_all(selection, tmp_path / "a")
    assert sorted(p.name for p in paths) == sorted(f"{name}.{kind}" for name in NAMES for kind in ("png", "svg", "csv"))
    first = next(figures(selection))
    assert [p.read_bytes() for p in paths[:2]] == [image(first.figure, kind) for kind in ("png", "svg")]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert not plt.get_fignums(), "nothing stays open"


def test_pdf_is_reproducible_and_a_wrong_kind_is_named(tmp_path: Path) -> None:
    selection = only(select(sweep(tmp_path / "s", by_lr)), {"scheduler": "polyak", "rho": 0.1})
    first, second = (save_all(selection, tmp_path / name, kinds=["pdf"], width="column") for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert first[0].read_bytes().startswith(b"%PDF")
    with pytest.raises(UserError, match="--kinds: 'gif'; expected one of pdf, png, svg"):
        save_all(selection, tmp_path / "c", kinds=["gif"])
    with pytest.raises(UserError, match="--width: 'wide'; expected one of column, page, screen"):
        save_all(selection, tmp_path / "c", width="wide")
