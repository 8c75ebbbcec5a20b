"""Published numbers beside ours, and what becomes of the claims."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from made import sweep

from analysis.compare import Compared, compare, load_published, published_of
from analysis.compared import render_compared
from analysis.figures import figures
from analysis.frames import Pulled
from analysis.report import render_report
from analysis.select import select
from sweeps.store import Store
from trainer.config import TrialConfig
from trainer.registry import UserError

CIFAR = {
    "parameters": {
        "task": {"value": "cifar10"},
        "model": {"value": "resnet20"},
        "optimizer": {"value": "usam"},
        "weight_decay": {"value": 5e-4},
        "rho": {"values": [0.1, 0.2, 0.3, 0.4]},
        "epochs": {"value": 3},
    },
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"values": [0.001, 0.1]}},
        {"scheduler": {"value": "cosine"}, "lr": {"value": 0.1}, "lr_min": {"values": [0.001, 0.01]}},
        {"scheduler": {"value": "polyak"}, "gamma_b": {"value": 1.0}},
    ],
    "tuned": ["lr", "lr_min"],
}
NOISE = (-0.001, 0.0005, 0.0012)
SPREAD = {"constant": 1.0, "cosine": 1.3, "polyak": 0.8}


def as_published(config: TrialConfig) -> list[float] | str:
    """Polyak ahead and steady, cosine falling: what the paper says."""
    rho = config.rho or 0
    base = {"constant": 0.89 - 0.02 * rho, "cosine": 0.90 - 0.1 * rho, "polyak": 0.91 - 0.01 * rho}[config.scheduler]
    worse = 0.05 if config.lr == 0.001 or config.lr_min == 0.01 else 0
    return [base - worse + NOISE[config.seed] * SPREAD[config.scheduler] * (1 + 0.1 * rho)]


def against(score: Callable[[TrialConfig], Any]) -> Callable[[TrialConfig], Any]:
    """The paper's roles turned round: cosine steady and ahead, Polyak falling."""

    def turned(config: TrialConfig) -> Any:
        swap = {"cosine": "polyak", "polyak": "cosine"}
        other = config.model_copy(update={"scheduler": swap.get(config.scheduler, config.scheduler), "lr_min": None})
        return score(other)

    return turned


def compared(pulled: Pulled) -> Compared:
    return compare(pulled, load_published("cifar"))


def verdicts(found: Compared, claim: str) -> Counter[str]:
    return Counter(one.overall for one in found.claims if claim in one.claim)


def test_the_192_published_cells_are_packaged() -> None:
    cells = load_published("cifar").cells
    assert len(cells) == 192 and cells["table"].nunique() == 16 and (cells["n"] == 3).all()
    kept = ROOT.parent / "shared" / "published" / "cifar_tables.csv"
    if kept.exists():
        assert (ROOT / "analysis" / "published" / "cifar.csv").read_bytes() == kept.read_bytes()


def test_every_published_cell_stands_beside_ours(tmp_path: Path) -> None:
    found = compared(sweep(tmp_path, as_published, **CIFAR))
    assert len(found.cells) == 192 and found.with_runs == 12 and found.metrics == ("top-1", "top-5")
    there = found.cells[(found.cells["top-1 n"] > 0)]
    row = there[(there["rho"] == 0.1) & (there["scheduler"] == "polyak")].iloc[0]
    assert (row["table"], row["test_accuracy_mean"], row["test_accuracy_std"]) == ("tab:usam_20_10_0.5", 91.16, 0.3)
    mean = 100 * (0.909 + sum(NOISE) * 0.8 * 1.01 / 3)
    assert row["top-1 mean"] == pytest.approx(mean) and row["top-1 difference"] == pytest.approx(mean - 91.16)
    spread = math.sqrt(row["top-1 std"] ** 2 / 3 + 0.3**2 / 3)
    assert row["top-1 z"] == pytest.approx((mean - 91.16) / spread)
    absent = found.cells[found.cells["dataset"] == "cifar100"]
    assert (absent["top-1 text"] == "no run").all() and absent["top-1 z"].isna().all()


def test_claims_hold_where_they_are_shown_for_top_1_and_top_5(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, as_published, **CIFAR)
    store = Store(str(tmp_path))
    flat = compared(pulled)
    assert verdicts(flat, "Polyak is the best") == {"not enough runs": 64}, "top-5 is 0.5 everywhere: it shows nothing"
    assert Counter(one.verdicts["top-1"] for one in flat.claims if "best of its row" in one.claim)["holds"] == 4
    for trial in store.launched("made").trials:
        rows = store.history(trial.trial_id)
        for row in rows:
            row["test/top5"] = row["test/top1"] + 0.05
        store.write_history(trial.trial_id, rows)
    from analysis.pull import pull

    found = compared(pull("made", store=store, cache=tmp_path / "cache"))
    assert verdicts(found, "Polyak is the best") == {"holds": 4, "not enough runs": 60}
    assert verdicts(found, "cosine falls off") == {"holds": 1, "not enough runs": 15}
    assert verdicts(found, "Polyak drops less") == {"holds": 1, "not enough runs": 15}
    assert verdicts(found, "0.1 is the best constant") == {"holds": 1, "not enough runs": 15}
    summary = {row["claim"]: row for row in found.summary()}
    assert summary["Polyak is the best of its row"]["published"] == "64 of 64"
    assert summary["Polyak is the best of its row"]["both"] == "4 holds, 60 not enough runs"


def test_claims_fail_where_the_opposite_is_shown(tmp_path: Path) -> None:
    found = compared(sweep(tmp_path, against(as_published), **CIFAR))
    for claim in ("Polyak is the best", "Polyak drops less"):
        assert Counter(one.verdicts["top-1"] for one in found.claims if claim in one.claim)["fails"] in (1, 4)
        assert verdicts(found, claim)["holds"] == 0 and verdicts(found, claim)["fails"] > 0


def test_a_difference_that_chance_explains_is_not_enough(tmp_path: Path) -> None:
    def noisy(config: TrialConfig) -> list[float]:
        ahead = 0.001 if config.scheduler == "polyak" else 0.0
        return [0.9 + ahead + (0.02, -0.015, 0.003)[(config.seed + len(config.scheduler)) % 3]]

    found = compared(sweep(tmp_path, noisy, **CIFAR))
    assert Counter(one.verdicts["top-1"] for one in found.claims if "best of its row" in one.claim) == {
        "not enough runs": 64
    }


def test_a_rival_that_diverged_is_beaten_and_one_that_is_missing_is_not(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        if config.scheduler == "cosine" and (config.rho or 0) > 0.3:
            return "diverged"
        return "new" if config.scheduler == "constant" and config.rho == 0.1 else as_published(config)

    found = compared(sweep(tmp_path, score, **CIFAR))
    of_row = {one.where[-7:]: one.verdicts["top-1"] for one in found.claims if one.has_runs and "best of" in one.claim}
    assert of_row == {"rho 0.1": "not enough runs", "rho 0.2": "holds", "rho 0.3": "holds", "rho 0.4": "holds"}
    told = next(one for one in found.claims if one.has_runs and "cosine falls off" in one.claim)
    assert told.verdicts["top-1"] == "holds" and "all seeds diverged" in told.details["top-1"]


def test_what_cannot_be_told_is_not_a_failure(tmp_path: Path) -> None:
    """Polyak diverged and its rival was not run; 0.1 was never tried."""

    def score(config: TrialConfig) -> list[float] | str:
        if config.scheduler == "cosine" and config.rho == 0.4:
            return "new"
        return "diverged" if config.scheduler == "polyak" and config.rho == 0.4 else as_published(config)

    other = [{"scheduler": {"value": "constant"}, "lr": {"values": [0.001, 0.01]}}, *CIFAR["variants"][1:]]  # type: ignore[misc]
    found = compared(sweep(tmp_path, score, **{**CIFAR, "variants": other}))
    of = {
        one.claim: one.verdicts["top-1"] for one in found.claims if one.has_runs and "best of its row" not in one.claim
    }
    assert of["Polyak drops less than cosine from the smallest to the largest radius"] == "not enough runs"
    assert of["0.1 is the best constant step size at every radius"] == "not enough runs"
    row = next(one for one in found.claims if one.where.endswith("rho 0.4") and one.has_runs)
    assert row.verdicts["top-1"] == "fails" and "over cosine (no value)" in row.details["top-1"], (
        "constant has finished"
    )


def test_the_report_of_a_sweep_without_published_cells_says_so(tmp_path: Path) -> None:
    page = render_report(select(sweep(tmp_path, lambda _: [0.9])), load_published("cifar"))
    assert "none of its cells is in made" in page and "<h2" in page


def test_the_text_says_what_is_compared_and_warns(tmp_path: Path) -> None:
    found = compared(sweep(tmp_path, as_published, **CIFAR))
    text = render_compared(found, "markdown")
    assert text.startswith(
        "made beside cifar: 12 of 192 published cells have runs here; published n = 3, ours selected on test"
    )
    assert text.count("Caution: ") == 2 and "fit top-5" in text and "held-out protocol" in text
    assert text.count("no run") == 2 * 180
    page = render_compared(found, "html")
    assert page.count("<table>") == 18 and "±" in page
    rows = list(csv.DictReader(io.StringIO(render_compared(found, "csv"))))
    assert len(rows) == 192 and {"top-1 difference", "top-1 z", "top-5 n", "selected"} <= set(rows[0])
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
    assert "What becomes of the published claims" in page and "tab:usam_20_10_0.5" in page and "4 holds" in page


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
    assert found.with_runs == 1 and found.published.seeds == "5" and found.claims == ()


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
