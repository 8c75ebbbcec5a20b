"""Whether Polyak's step sizes are better, row by row: the verdicts on made-up runs."""

from __future__ import annotations

from pathlib import Path

from polysweep.analysis.paper.advantage import advantage_table, advantages, tally
from polysweep.analysis.tables.writers import markdown
from polysweep.trainer.config import TrialConfig
from tests.support.made import sweep

LEVEL = {"constant": 0.90, "cosine": 0.85, "polyak": 0.95}
VARIANTS = [
    {"scheduler": {"value": "constant"}, "lr": {"value": 0.1}},
    {"scheduler": {"value": "cosine"}, "lr": {"value": 0.1}, "lr_min": {"value": 0.01}},
    {"scheduler": {"value": "polyak"}},
]


def score(config: TrialConfig) -> list[float]:
    """Polyak is the best at radius 0.1, the worst at 0.4, with a spread of 0.001 over seeds."""
    level = LEVEL[config.scheduler]
    if config.rho == 0.4 and config.scheduler == "polyak":
        level = 0.80
    return [level + 0.001 * config.seed]


def test_a_row_holds_where_it_is_better_than_both_and_fails_where_one_of_them_is_better(tmp_path: Path) -> None:
    rows = advantages(sweep(tmp_path, score, variants=VARIANTS, tuned=[]), ["test/top1", "test/loss"])
    verdicts = {(row.metric, row.place["rho"]): row.verdict for row in rows}
    assert verdicts == {
        ("test/top1", "0.1"): "holds", ("test/top1", "0.4"): "fails",
        ("test/loss", "0.1"): "holds", ("test/loss", "0.4"): "fails",
    }  # fmt: skip
    assert tally(rows) == "of 4 rows: holds in 2, fails in 2"
    text = markdown(advantage_table(rows, "Better"))
    assert "| test/top1 | 0.1 | 95.10  | 90.10    | 85.10  | 5.00 [4.80, 5.26]" in text, text


def test_what_cannot_be_told_apart_is_not_shown_and_p_counts_all_rows(tmp_path: Path) -> None:
    def equal(config: TrialConfig) -> list[float]:
        return [0.9 + 0.01 * config.seed + (0.012 if config.scheduler == "polyak" else 0)]

    pulled = sweep(tmp_path, equal, variants=VARIANTS, tuned=[])
    one, all_ = advantages(pulled, ["test/top1"]), advantages(pulled, ["test/top1", "test/loss"])
    assert {row.verdict for row in all_} == {"not shown"}
    assert all_[0].p >= one[0].p > 0.05


def test_a_row_without_runs_or_without_a_rival_is_said_to_be_so(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, lambda _: "new", variants=VARIANTS, tuned=[])
    assert {row.verdict for row in advantages(pulled, ["test/top1"])} == {"no runs"}
    alone = sweep(tmp_path / "alone", score, variants=VARIANTS[2:], tuned=[])
    assert advantages(alone, ["test/top1"]) == [] and tally([]) == "of 0 rows: none"
