"""A comparison as Markdown, CSV and HTML."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from polysweep.analysis.published.formats import render_compared
from polysweep.trainer.errors import UserError
from tests.support.made import sweep
from tests.support.published import CIFAR, as_published, compared


def test_the_text_says_what_is_compared_and_warns(tmp_path: Path) -> None:
    found = compared(sweep(tmp_path, as_published, **CIFAR))
    text = render_compared(found, "markdown")
    assert text.startswith(
        "made beside cifar: 12 of 192 published cells have runs here; published n = 3, ours selected on test"
    )
    assert text.count("Caution: ") == 2 and "0.12 +- 0.29, r = 0.994" in text and "held-out protocol" in text
    assert "Welch's t" in text and "(Holm)" in text
    page = render_compared(found, "html")
    assert page.count("<table>") == 18 and "±" in page
    rows = list(csv.DictReader(io.StringIO(render_compared(found, "csv"))))
    assert len(rows) == 192 and {"top-1 difference", "top-1 low", "top-5 n", "selected"} <= set(rows[0])
    assert not any(name.endswith(" z") for name in rows[0]), "of three seeds it is no z"
    with pytest.raises(UserError, match="--format: 'pdf'; expected one of csv, html, markdown"):
        render_compared(found, "pdf")
