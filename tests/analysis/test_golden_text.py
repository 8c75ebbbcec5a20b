"""Golden text: what table, compare and report say of sweeps whose results are made up, byte for byte as it was.

`python -m tests.analysis.test_golden_text` writes it anew.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from polysweep.analysis.published.cells import load_published
from polysweep.analysis.published.comparison import compare
from polysweep.analysis.published.formats import FORMATS as COMPARISON_FORMATS
from polysweep.analysis.published.formats import render_compared
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import FORMATS, render
from tests.support.made import CAPS, capped, sweep
from tests.support.published import CIFAR, as_published

TEXTS: Final = Path(__file__).parent / "golden/texts.json"
TABLES: Final = ("tab:usam_20_10_0.5", "tab:usam_20_100_0.5")


def texts(folder: Path) -> dict[str, str]:
    """By name a text: tables with diverged seeds and intervals, a comparison of two tables, and a report's page."""
    selection = select(sweep(folder / "caps", capped, **CAPS))
    tables = {f"table {name}": render(selection, name, intervals=True) for name in FORMATS}
    published = load_published("cifar")
    published = replace(published, cells=published.cells[published.cells["table"].isin(TABLES)])
    cifar = sweep(folder / "cifar", as_published, **CIFAR)
    compared = compare(cifar, published)
    comparisons = {f"comparison {name}": render_compared(compared, name) for name in COMPARISON_FORMATS}
    page = render_report(select(cifar), published).replace(str(folder), "FOLDER").partition("<body>")[2]
    page = re.sub(r"data:image/svg\+xml;base64,[^\"]*", "IMAGE", page)
    return {**tables, **comparisons, "report": re.sub(r"Written [-0-9]* [0-9:]* UTC", "Written NOW", page)}


def test_texts_stay(tmp_path: Path) -> None:
    kept = json.loads(TEXTS.read_text())
    now = texts(tmp_path)
    assert now.keys() == kept.keys()
    for name, text in now.items():
        assert text == kept[name], name


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        written = texts(Path(temporary))
    TEXTS.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
