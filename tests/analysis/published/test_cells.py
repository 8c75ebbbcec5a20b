"""Published cells: those that are packaged, and those of any CSV of the same columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.analysis.published.cells import load_published
from polysweep.analysis.published.comparison import compare
from polysweep.trainer.errors import UserError
from tests.support.made import sweep
from tests.support.project import ROOT
from tests.support.published import NOISE


def test_the_192_published_cells_are_packaged() -> None:
    cells = load_published("cifar").cells
    assert len(cells) == 192 and cells["table"].nunique() == 16 and (cells["n"] == 3).all()
    kept = ROOT.parent / "shared" / "published" / "cifar_tables.csv"
    if kept.exists():
        assert (ROOT / "analysis" / "published" / "cifar.csv").read_bytes() == kept.read_bytes()


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
