"""Published numbers beside ours."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.published.cells import load_published
from polysweep.analysis.published.comparison import compare, published_of
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.trainer.errors import UserError
from tests.support.made import sweep
from tests.support.published import CIFAR, NOISE, as_published, compared, verdicts


def freedom(row: Any) -> float:
    """Welch and Satterthwaite's, of our std and the printed one, n = 3 each."""
    a, b = row["top-1 std"] ** 2 / 3, row["test_accuracy_std"] ** 2 / 3
    return float((a + b) ** 2 / (a**2 / 2 + b**2 / 2))


def test_every_published_cell_stands_beside_ours(tmp_path: Path) -> None:
    found = compared(sweep(tmp_path, as_published, **CIFAR))
    assert len(found.cells) == 192 and found.with_runs == 12
    assert found.readings == ("top-1", "top-5", "our CIFAR-10")
    own = found.cells[found.cells["dataset"] == "cifar10"]
    row = own[(own["top-1 n"] > 0) & (own["rho"] == 0.1) & (own["scheduler"] == "polyak")].iloc[0]
    assert (row["table"], row["test_accuracy_mean"], row["test_accuracy_std"]) == ("tab:usam_20_10_0.5", 91.16, 0.3)
    values = [100 * (0.909 + noise * 0.8 * 1.01) for noise in NOISE]
    test = stats.ttest_ind_from_stats(
        statistics.fmean(values), statistics.stdev(values), 3, 91.16, 0.3, 3, equal_var=False
    )
    assert row["top-1 difference"] == pytest.approx(statistics.fmean(values) - 91.16)
    reach = (row["top-1 high"] - row["top-1 low"]) / 2
    spread = math.sqrt(row["top-1 std"] ** 2 / 3 + 0.3**2 / 3)
    assert test.pvalue == pytest.approx(2 * stats.t.sf(abs(row["top-1 difference"]) / spread, freedom(row)))
    assert reach == pytest.approx(stats.t.isf(0.025, freedom(row)) * spread)
    assert (own["top-5 text"] == "-").all(), "CIFAR-10 is judged by top-1 alone"


def test_the_cifar_100_cells_have_three_readings(tmp_path: Path) -> None:
    """Our CIFAR-10 stands beside the printed CIFAR-100 too; top-1 and top-5 are of our own CIFAR-100: none ran."""
    found = compared(sweep(tmp_path, as_published, **CIFAR))
    row = found.cells[(found.cells["dataset"] == "cifar100") & (found.cells["our CIFAR-10 n"] > 0)].iloc[0]
    same = found.cells[
        (found.cells["dataset"] == "cifar10")
        & (found.cells[["optimizer", "model", "weight_decay", "rho", "scheduler"]] == row[
            ["optimizer", "model", "weight_decay", "rho", "scheduler"]]).all(axis=1)
    ].iloc[0]  # fmt: skip
    assert row["our CIFAR-10 mean"] == same["top-1 mean"]
    assert row["our CIFAR-10 difference"] == pytest.approx(same["top-1 mean"] - row["test_accuracy_mean"])
    assert (row["top-1 text"], row["top-5 text"]) == ("no run", "no run")
    best = "Polyak is the best"
    assert verdicts(found, best, "our CIFAR-10", "cifar100") == verdicts(found, best) == {"holds": 4}
    assert not verdicts(found, best, "top-5", "cifar100")


def test_the_published_curve_stands_beside_ours_and_the_report_has_the_verdicts(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, as_published, **CIFAR))
    published = load_published("cifar")
    drawn = next(iter(figures(selection, published=published_of(published, selection))))
    labels = {text.get_text() for text in drawn.figure.legends[0].get_texts()}
    assert labels == {f"{name}{other}" for name in ("constant", "cosine", "polyak") for other in ("", ", published")}
    boxes = drawn.figure.axes[0].containers
    lines = {line.get_label(): list(line.get_ydata()) for box in boxes for line in box.lines[:1]}
    assert [91.16, 91.18, 90.65, 90.3] in lines.values()
    page = render_report(selection, published)
    assert "Verdicts on the published claims" in page and "tab:usam_20_10_0.5" in page and "4 holds" in page


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    polyak = {"scheduler": {"value": "polyak"}, "gamma_b": {"values": [1, 10]}}
    pulled = sweep(tmp_path / "b", as_published, **{**CIFAR, "variants": [*CIFAR["variants"][:2], polyak]})
    cifar = load_published("cifar")
    assert compare(pulled, cifar, where={"gamma_b": "10.0"}).with_runs == 12
    for call, message in (
        (lambda: compared(sweep(tmp_path / "a", lambda _: [0.9])), "has usam mlp digits; published are sam resnet20"),
        (lambda: load_published("imagenet"), "--published: no file 'imagenet'; expected one of cifar, or a CSV file"),
        (lambda: compared(pulled), "match one published cell; --where picks among gamma_b: 1.0, 10.0"),
        (lambda: compare(pulled, cifar, where={"gamma_b": "7"}), "no cell has gamma_b=7; expected one of 1.0, 10.0"),
        (lambda: compare(pulled, cifar, where={"gama_b": "7"}), "'gama_b' does not vary beside the published fields"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            call()
