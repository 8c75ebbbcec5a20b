"""The document as one HTML page, which needs no network, and as LaTeX, which becomes a PDF where LaTeX is installed."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from polysweep.analysis.figures.files import NamedFigure, image
from polysweep.analysis.paper.document import Block, Document
from polysweep.analysis.tables.writers import Entry, Table, html, latex_escaped
from polysweep.sweeps.console import warn
from polysweep.trainer.errors import UserError

ENGINE: Final = "pdflatex"
RUNS: Final = 3
"""How often LaTeX runs: longtable finds its columns' widths in the second."""
LATEX_SECONDS: Final = 300
SIGNS: Final = {
    "±": r"$\pm$",
    "‖": r"$\|$",
    "²": "$^2$",
    "⁰": "$^0$",
    "\N{GREEK SMALL LETTER RHO}": r"$\rho$",
    "\N{GREEK SMALL LETTER GAMMA}": r"$\gamma$",
    "x̄": r"$\bar{x}$",
    "·": r"$\cdot$",
    "\N{EN DASH}": "--",
    "…": r"\ldots{}",
    "\N{NO-BREAK SPACE}": "~",
}
"""By sign of our texts what LaTeX sets; every other one beyond ASCII becomes a question mark."""


def write_document(document: Document, out: Path) -> list[Path]:
    """Write `paper.html`; and if LaTeX is installed `paper.tex`, its figures and `paper.pdf`. Returns the pages.

    If LaTeX fails there is a warning, and the page. Raises `UserError` if the folder cannot be written.
    """
    page = out / "paper.html"
    try:
        out.mkdir(parents=True, exist_ok=True)
        page.write_text(_rendered("paper.html.j2", document, {"block": _html_block}, autoescape=True), encoding="utf-8")
        if not shutil.which(ENGINE):
            return [page]
        source = _write_latex(document, out)
    except OSError as error:
        raise UserError(f"--out: {out} cannot be written: {error}") from None
    return [page, *_pdf(source)]


def _write_latex(document: Document, out: Path) -> Path:
    """`paper.tex`, and the figures that it includes."""
    figures = [one for section in document.sections for one in section.blocks if isinstance(one, NamedFigure)]
    names = {id(one): f"{number:02d}-{one.name}" for number, one in enumerate(figures, start=1)}
    (out / "figures").mkdir(exist_ok=True)
    for one in figures:
        (out / "figures" / f"{names[id(one)]}.pdf").write_bytes(image(one.figure, "pdf"))
    source = out / "paper.tex"
    filters = {"block": lambda block: _latex_block(block, names), "text": _latex_text}
    source.write_text(_rendered("paper.tex.j2", document, filters, autoescape=False), encoding="utf-8")
    return source


def _rendered(template: str, document: Document, filters: dict[str, Any], *, autoescape: bool) -> str:
    environment = Environment(
        loader=PackageLoader("polysweep.analysis.paper", "."),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        variable_start_string="<<",  # braces are LaTeX's
        variable_end_string=">>",
    )
    environment.filters |= filters
    return environment.get_template(template).render(document=document)


def _html_block(block: Block) -> str:
    if isinstance(block, Table):
        rows = [[*row[: block.fields], *map(_entry, row[block.fields :])] for row in block.rows]
        return f'<div class="wide" tabindex="0">{html(replace(block, rows=rows))}</div>'
    if isinstance(block, NamedFigure):
        data = base64.b64encode(image(block.figure, "svg")).decode()
        caption = escape(block.caption)
        return (
            f'<figure><div class="wide" tabindex="0"><img src="data:image/svg+xml;base64,{data}" alt="{caption}"></div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in block) + "</ul>"


def _entry(one: str | Entry) -> Entry:
    """An entry, also of what is a text: in HTML a text is the name of its row."""
    return one if isinstance(one, Entry) else Entry(one)


def _latex_block(block: Block, names: dict[int, str]) -> str:
    if isinstance(block, Table):
        return _latex_table(block)
    if isinstance(block, NamedFigure):
        size = r"width=\linewidth,height=0.8\textheight,keepaspectratio"
        graphic = rf"\includegraphics[{size}]{{figures/{names[id(block)]}.pdf}}"
        return "\n".join([r"\begin{center}", graphic, rf"\par\small {_latex_text(block.caption)}", r"\end{center}"])
    if isinstance(block, str):
        return f"{_latex_text(block)}\n"
    items = [rf"\item {_latex_text(line)}" for line in block]
    return "\n".join([r"\begin{itemize}", *items, r"\end{itemize}"]) if items else ""


def _latex_table(table: Table) -> str:
    """A table that may be longer than a page, in as small a print as its columns need."""
    columns, width = len(table.header), sum(_widest(table, at) for at in range(len(table.header)))
    size = r"\footnotesize" if width < 90 else r"\scriptsize" if width < 120 else r"\tiny"
    title = ": ".join(filter(None, [", ".join([table.name, *map(str, table.values.values())]), table.caption]))
    share = 0.96 / columns
    wide = width > 170
    places = rf"p{{{share:.3f}\linewidth}}" * columns if wide else "l" * table.fields + "c" * (columns - table.fields)
    header = " & ".join(_latex_text(str(one)) for one in table.header)
    rows = [" & ".join(_latex_entry(one) for one in row) + r" \\" for row in table.rows]
    return "\n".join(
        [
            rf"{{{size}\setlength{{\tabcolsep}}{{3pt}}",
            rf"\begin{{longtable}}{{{places}}}",
            rf"\caption*{{{_latex_text(title)}}}\\ \toprule {header} \\ \midrule \endhead \bottomrule \endfoot",
            *rows,
            r"\end{longtable}",
            *(rf"\noindent {_latex_text(note.strip())}\par" for note in table.notes),
            "}",
        ]
    )


def _widest(table: Table, at: int) -> int:
    return max(len(str(row[at])) for row in [table.header, *table.rows])


def _latex_entry(entry: str | Entry) -> str:
    text = _latex_text(str(entry))
    return rf"\textbf{{{text}}}" if isinstance(entry, Entry) and entry.is_marked else text


def _latex_text(text: str) -> str:
    escaped = latex_escaped(text.replace("+-", "±"))
    for sign, formula in SIGNS.items():
        escaped = escaped.replace(sign, formula)
    return escaped.encode("ascii", "replace").decode()


def _pdf(source: Path) -> list[Path]:
    """Run LaTeX beside the source, its own files aside; if it fails, as without one of its packages, it warns."""
    pdf = source.with_suffix(".pdf")
    with tempfile.TemporaryDirectory(prefix="polysweep-") as temporary:
        command = [ENGINE, "-interaction=nonstopmode", "-halt-on-error", f"-output-directory={temporary}", source.name]
        for _ in range(RUNS):
            try:
                done = subprocess.run(
                    command, cwd=source.parent, capture_output=True, text=True, errors="replace", timeout=LATEX_SECONDS,
                    check=False,
                )  # fmt: skip
                reason = next((line for line in done.stdout.splitlines() if line.startswith("!")), "no reason given")
            except (OSError, subprocess.TimeoutExpired) as error:
                done, reason = None, str(error)
            if done is None or done.returncode:
                warn(f"{source}: {ENGINE} failed: {reason}; the page is {source.with_suffix('.html')}")
                return []
        shutil.copy(Path(temporary) / pdf.name, pdf)
    return [pdf]
