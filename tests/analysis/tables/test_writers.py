"""Tables as Markdown, LaTeX and HTML: no text ends a cell, and none is taken for a command."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.writers import Entry, Table, latex_escaped, markdown, markdown_page
from tests.support.made import by_lr, sweep


def test_latex_prints_the_signs_that_old_font_encodings_lack() -> None:
    assert latex_escaped("a<b>c|d") == r"a\textless{}b\textgreater{}c\textbar{}d"


def test_a_latex_head_is_in_words(optimizers: Selection) -> None:
    text = render(optimizers, "latex")
    assert r"\caption{optimizers (weight decay 0, optimizer sgd): " in text and "0.0," not in text


def test_latex_is_booktabs_with_the_best_in_bold(tmp_path: Path) -> None:
    text = render(select(sweep(tmp_path, by_lr)), "latex")
    assert r"0.1 & $90.00_{\pm 1.00}$ & $\mathbf{95.00_{\pm 1.00}}$ \\" in text
    assert r"\toprule" in text and r"(\%)" in text and text.count("{") == text.count("}")


def test_html_is_a_table_with_headers(tmp_path: Path) -> None:
    text = render(select(sweep(tmp_path, by_lr)), "html")
    assert text.count("<table>") == 1 and '<th scope="row">0.1</th>' in text
    assert "<td><b>95.00 ± 1.00</b></td>" in text and "at the best epoch" in text


def test_hostile_names_stay_text_in_latex(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr, name="a_b-50.x")
    text = render(select(pulled), "latex")
    assert r"a\_b-50.x" in text and not re.search(r"(?<!\\)_(?!\{)", text.split(r"\label")[0].split("%")[0])


def test_on_a_page_the_notes_are_a_list() -> None:
    """A page sets lines below each other as one paragraph; lists stay as they are, one in the other too."""
    table = Table(["rho", "polyak"], [["0.1", Entry("1.0")]], 1, notes=["best:", "  rho 0.1: a"])
    assert markdown_page(table).split("\n\n") == [markdown(replace(table, notes=())), "- best:\n  - rho 0.1: a"]
    assert markdown_page(replace(table, notes=())) == markdown(replace(table, notes=()))
