"""One document as a page and as LaTeX: every text is shown as it is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from polysweep.analysis.figures.files import NamedFigure
from polysweep.analysis.paper.document import Document, Section
from polysweep.analysis.paper.rendering import ENGINE, write_document
from polysweep.analysis.tables.writers import Entry, Table
from polysweep.trainer.errors import UserError

NASTY = r"50 % & <b> {x}_1 \frac ~ ^ # $ | " + "\N{GREEK SMALL LETTER RHO} ± ‖g‖² 漢"


def document() -> Document:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([1, 2])
    table = Table(
        ["rho", "a_b"], [["0.1", "1.0 +- 0.2"], ["0.2", Entry("best", is_marked=True)]], 1, NASTY, {}, "here", [NASTY]
    )
    long = Table([f"column {n}" for n in range(9)], [["a rather long entry" for _ in range(9)]] * 80, 1, "long")
    blocks = [NASTY, [NASTY, "second"], table, NamedFigure("plot", figure, pd.DataFrame(), NASTY), long, []]
    return Document(f"Title {NASTY}", [NASTY], [Section(f"Heading {NASTY}", blocks)])


@pytest.fixture
def without_latex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_without_latex_there_is_a_page_that_needs_no_network(without_latex: Path, tmp_path: Path) -> None:
    pages = write_document(document(), tmp_path / "paper")
    assert pages == [tmp_path / "paper" / "paper.html"]
    page = pages[0].read_text()
    assert "50 % &amp; &lt;b&gt; {x}_1" in page and "<b>best</b>" in page and "1.0 ± 0.2" in page
    assert "http://" not in page.replace("http://www.w3.org", "") and 'src="data:image/svg+xml;base64,' in page
    assert page.count("<table>") == 2 and page.count("<figure>") == 1
    assert [path.name for path in (tmp_path / "paper").iterdir()] == ["paper.html"]


def test_latex_that_fails_is_one_line_and_the_page_is_there(
    without_latex: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = without_latex / ENGINE
    engine.write_text("#!/bin/sh\necho '! Undefined control sequence.'\nexit 1\n")
    engine.chmod(0o755)
    assert write_document(document(), tmp_path / "paper") == [tmp_path / "paper" / "paper.html"]
    said = capsys.readouterr().err
    assert "warning: " in said and "pdflatex failed: ! Undefined control sequence.; the page is " in said
    assert (tmp_path / "paper" / "figures" / "01-plot.pdf").read_bytes().startswith(b"%PDF")
    source = (tmp_path / "paper" / "paper.tex").read_text()
    assert r"50 \% \& \textless{}b\textgreater{} \{x\}\_1" in source and r"$\rho$ $\pm$" in source
    source.encode("ascii")


def test_where_latex_is_installed_there_is_a_pdf_beside_the_page(without_latex: Path, tmp_path: Path) -> None:
    """With an engine that reads the source and writes what it is asked for, where it is asked for."""
    engine = without_latex / ENGINE
    engine.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\nfolder = sys.argv[3].removeprefix('-output-directory=')\n"
        "source = pathlib.Path(sys.argv[4]).read_text()\n"
        "assert source.count('{') == source.count('}') and source.rstrip().endswith('end{document}')\n"
        "pathlib.Path(folder, 'paper.pdf').write_bytes(b'%PDF')\n"
    )
    engine.chmod(0o755)
    pages = write_document(document(), tmp_path / "paper")
    assert [page.name for page in pages] == ["paper.html", "paper.pdf"] and pages[1].read_bytes() == b"%PDF"
    assert {path.name for path in (tmp_path / "paper").iterdir()} == {
        "figures", "paper.html", "paper.tex", "paper.pdf"
    }  # fmt: skip


def test_an_installed_latex_sets_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without one the page stands alone; with one it has no error."""
    pages = write_document(document(), tmp_path)
    assert [page.suffix for page in pages] == [".html", *([".pdf"] if shutil.which(ENGINE) else [])]
    assert capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--out: .*file cannot be written"):
        write_document(document(), tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
