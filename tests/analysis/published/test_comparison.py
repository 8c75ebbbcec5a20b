"""Published numbers beside ours, and what becomes of the claims."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.published.cells import load_published
from polysweep.analysis.published.claims import NO_RUNS
from polysweep.analysis.published.comparison import Compared, compare, published_of
from polysweep.analysis.published.formats import render_compared
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.made import sweep
from tests.support.project import ROOT
from tests.support.published import CIFAR, NOISE, as_published


def against(score: Callable[[TrialConfig], Any]) -> Callable[[TrialConfig], Any]:
    """The paper's roles turned round: cosine steady and ahead, Polyak falling."""

    def turned(config: TrialConfig) -> Any:
        swap = {"cosine": "polyak", "polyak": "cosine"}
        other = config.model_copy(update={"scheduler": swap.get(config.scheduler, config.scheduler), "lr_min": None})
        return score(other)

    return turned


def compared(pulled: RunSet) -> Compared:
    return compare(pulled, load_published("cifar"))


def verdicts(found: Compared, claim: str, reading: str = "top-1", dataset: str = "cifar10") -> Counter[str]:
    return Counter(
        one.verdict
        for one in found.claims
        if claim in one.claim and one.reading == reading and one.dataset == dataset and one.verdict != NO_RUNS
    )


def test_the_192_published_cells_are_packaged() -> None:
    cells = load_published("cifar").cells
    assert len(cells) == 192 and cells["table"].nunique() == 16 and (cells["n"] == 3).all()
    kept = ROOT.parent / "shared" / "published" / "cifar_tables.csv"
    if kept.exists():
        assert (ROOT / "analysis" / "published" / "cifar.csv").read_bytes() == kept.read_bytes()


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


def freedom(row: Any) -> float:
    """Welch and Satterthwaite's, of our std and the printed one, n = 3 each."""
    a, b = row["top-1 std"] ** 2 / 3, row["test_accuracy_std"] ** 2 / 3
    return float((a + b) ** 2 / (a**2 / 2 + b**2 / 2))


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


def test_claims_hold_where_they_are_shown(tmp_path: Path) -> None:
    found = compared(sweep(tmp_path, as_published, **CIFAR))
    assert verdicts(found, "Polyak is the best") == {"holds": 4}
    assert verdicts(found, "cosine falls off") == {"holds": 1}
    assert verdicts(found, "Polyak drops less") == {"holds": 1}
    assert verdicts(found, "0.1 is the best constant") == {"holds": 1}
    summary = {(row["claim"], row["dataset"]): row for row in found.summary() if row["reading"] == "top-1"}
    row = summary["Polyak is the best of its row", "cifar10"]
    assert (row["published"], row["verdicts"]) == ("32 of 32", "4 holds, 28 no runs")


def test_claims_fail_where_the_opposite_is_shown(tmp_path: Path) -> None:
    found = compared(sweep(tmp_path, against(as_published), **CIFAR))
    for claim in ("Polyak is the best", "Polyak drops less"):
        assert set(verdicts(found, claim)) == {"fails"}


def test_a_difference_that_chance_explains_is_not_shown(tmp_path: Path) -> None:
    def noisy(config: TrialConfig) -> list[float]:
        ahead = 0.001 if config.scheduler == "polyak" else 0.0
        return [0.9 + ahead + (0.02, -0.015, 0.003)[(config.seed + len(config.scheduler)) % 3]]

    found = compared(sweep(tmp_path, noisy, **CIFAR))
    assert verdicts(found, "Polyak is the best") == {"not shown": 4}


def test_an_undecided_cell_has_no_verdict(tmp_path: Path) -> None:
    """A failed seed of the leading step size: its row is undecided, and so is what is said of the step size."""

    def score(config: TrialConfig) -> list[float] | str:
        return "failed" if (config.rho, config.lr, config.seed) == (0.1, 0.1, 2) else as_published(config)

    found = compared(sweep(tmp_path, score, **CIFAR))
    assert verdicts(found, "Polyak is the best") == {"undecided": 1, "holds": 3}
    assert verdicts(found, "0.1 is the best constant") == {"undecided": 1}
    row = found.cells[(found.cells["rho"] == 0.1) & (found.cells["top-1 n"] > 0)].iloc[0]
    assert row["top-1 text"].startswith("undecided: lr=0.1 ") and math.isnan(row["top-1 difference"])


def test_three_seeds_that_diverged_against_three_that_did_not_show_nothing(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.scheduler == "cosine" and (config.rho or 0) > 0.3:
            return "diverged"
        return "new" if config.scheduler == "constant" and config.rho == 0.1 else as_published(config)

    found = compared(sweep(tmp_path, score, **CIFAR))
    of_row = {
        one.where[-7:]: one.verdict
        for one in found.claims
        if "best of" in one.claim and one.dataset == "cifar10" and one.verdict != NO_RUNS
    }
    assert of_row == {"rho 0.1": "undecided", "rho 0.2": "holds", "rho 0.3": "holds", "rho 0.4": "not shown"}
    told = next(one for one in found.claims if "cosine falls off" in one.claim and one.verdict != NO_RUNS)
    assert told.verdict == "not shown" and told.difference.p == pytest.approx(0.1), "Fisher's exact test, 3 against 3"

    def ten(config: TrialConfig) -> list[float] | str:
        fate = score(config.model_copy(update={"seed": config.seed % 3}))
        return [fate[0] + 1e-4 * config.seed] if isinstance(fate, list) else fate

    found = compared(sweep(tmp_path / "ten", ten, **{**CIFAR, "seeds": 10}))
    told = next(one for one in found.claims if "cosine falls off" in one.claim and one.verdict != NO_RUNS)
    assert told.verdict == "holds"


def test_what_cannot_be_told_is_not_a_failure(tmp_path: Path) -> None:
    """0.1 was never tried, and n = 1 shows nothing."""
    other = [{"scheduler": {"value": "constant"}, "lr": {"values": [0.001, 0.01]}}, *CIFAR["variants"][1:]]  # type: ignore[misc]
    found = compared(sweep(tmp_path, as_published, **{**CIFAR, "variants": other}))
    step = next(one for one in found.claims if "0.1 is the best constant" in one.claim and one.verdict != NO_RUNS)
    assert step.verdict == "not shown" and "not every radius has 0.1 and another step size" in step.detail
    one_seed = compared(sweep(tmp_path / "one", as_published, **{**CIFAR, "seeds": 1}))
    assert verdicts(one_seed, "Polyak is the best") == {"not shown": 4}
    assert all(
        "n = 1" in one.detail for one in one_seed.claims if one.verdict == "not shown" and "safe" not in one.claim
    )


def test_the_safeguard_is_judged_over_all_polyak_trials(tmp_path: Path) -> None:
    """Every epoch of the made runs has zero_share 0.5, in 12 trials. With none, 12 are too few to call it rare."""
    pulled = sweep(tmp_path, as_published, **CIFAR)
    (claim,) = [one for one in compared(pulled).claims if "safeguard" in one.claim and one.verdict != NO_RUNS]
    assert (claim.verdict, claim.where) == ("fails", "usam") and "12 of 12 trials have gamma = 0" in claim.detail
    calm = replace(pulled, runs=pulled.runs.assign(zero_share=0.01))
    (claim,) = [one for one in compared(calm).claims if "safeguard" in one.claim and one.verdict != NO_RUNS]
    assert claim.verdict == "not shown" and "below 5% by +5.00 [-21.46, +5.00]" in claim.detail


def test_the_report_of_a_sweep_without_published_cells_says_so(tmp_path: Path) -> None:
    page = render_report(select(sweep(tmp_path, lambda _: [0.9])), load_published("cifar"))
    assert "none of its cells is in made" in page and "<h2" in page


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "has no column optimizer, model, dataset"),
        (
            "{head}\nusam,resnet20,cifar10,0.0,0.1,polyak,high,0.1,t\n",
            ":2: test_accuracy_mean is 'high', expected a number",
        ),
        ("{head}\n" + "usam,resnet20,cifar10,0.0,0.1,polyak,90,0.1,t\n" * 2, ":3: this cell is listed before"),
    ],
)
def test_a_wrong_csv_is_named_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    head = "optimizer,model,dataset,weight_decay,rho,scheduler,test_accuracy_mean,test_accuracy_std,table"
    path = tmp_path / "other.csv"
    path.write_text(content.replace("{head}", head))
    with pytest.raises(UserError, match=f"--published: {path}.*{message}"):
        load_published(str(path))


def test_any_csv_of_the_same_columns_will_do(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_text(
        "optimizer,model,dataset,weight_decay,rho,scheduler,test_accuracy_mean,test_accuracy_std,table,n\n"
        "usam,mlp,digits,0.0,0.1,polyak,95.0,1.0,t,5\n"
    )
    made = sweep(tmp_path, lambda c: [0.95 + NOISE[c.seed]])
    found = compare(made, load_published(str(path)))
    assert found.with_runs == 1 and found.published.seeds == "5"
    assert {one.verdict for one in found.claims} == {"fails"}, "only the safeguard can be judged"


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
