"""The report of a sweep: one page that needs nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from polysweep import pull
from polysweep.analysis.figures.gallery import save_all
from polysweep.analysis.published.cells import load_published
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from tests.support.drawn import NAMES
from tests.support.made import by_lr, sweep
from tests.support.theory import trained


def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    def score(config: TrialConfig) -> list[float] | str:
        fates: dict[int, list[float] | str] = {0: by_lr(config), 1: by_lr(config), 2: "diverged"}
        return "failed" if config.lr == 1.0 else fates[config.seed]

    page = render_report(select(sweep(tmp_path, score)))
    sources = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)""", page)
    assert len([s for s in sources if s.startswith("data:image/svg+xml;base64,")]) == len(NAMES) - 1, "no budget"
    assert all(s.startswith(("data:", "#")) for s in sources)
    assert not re.search(r"@import|url\(|<script src|<link rel=.stylesheet", page)
    for expected in (
        "ValueError: oh", "after step 4", "lr=0.1", "c0ffee (24 trials)", "Selected on test",
        "89.50 ± 0.71 (2/3, 1 diverged)",
    ):  # fmt: skip
        assert expected in page
    for part in ("tables", "plots", "selection", "failures", "spec", "provenance"):
        assert f'<h2 id="{part}">' in page


def test_hostile_text_is_escaped(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, lambda c: "failed" if c.seed == 2 else by_lr(c))
    pulled.runs.loc[pulled.runs["outcome"] == "failed", "error"] = "<script>alert(1)</script>"
    page = render_report(select(pulled))
    assert "<script>alert" not in page and "&lt;script&gt;" in page


def test_a_sweep_that_diverged_altogether_has_a_report(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, lambda _: "diverged"))
    page = render_report(selection)
    assert "after step 4" in page and "diverged 3/3" in page
    assert (selection.cells["selected"] == "").all() and (selection.cells["edge"] == "").all()
    assert save_all(selection, tmp_path / "plots")


def test_the_report_of_a_sweep_without_published_cells_says_so(tmp_path: Path) -> None:
    page = render_report(select(sweep(tmp_path, lambda _: [0.9])), load_published("cifar"))
    assert "none of its cells is in made" in page and "<h2" in page


def test_a_report_of_a_sweep_whose_radius_is_tuned(tmp_path: Path) -> None:
    from polysweep.analysis.report.html import write_report

    text = """
name: radii
metric: {name: suboptimality/relative, goal: minimize}
parameters: {task: {value: ridge}, model: {value: linear}, optimizer: {value: usam}, batch_size: {value: 100},
  scheduler: {value: polyak-deterministic}, rho: {values: [1.0, 5.0]}, epochs: {value: 20}}
tuned: [rho]
seeds: 2
"""
    trained(text, tmp_path / "store")
    pulled = pull("radii", store=Store(str(tmp_path / "store")), cache=tmp_path / "cache")
    write_report(select(pulled, epoch="last"), tmp_path / "r.html", None, {})
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "rho=1.0" in page and "rho=5.0" in page
