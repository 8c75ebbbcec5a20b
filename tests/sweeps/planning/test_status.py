"""Where a launched sweep stands, also with damaged trials."""

from __future__ import annotations

from pathlib import Path

from tests.support.inprocess import polysweep
from tests.support.made import by_lr, sweep


def test_status_names_a_damaged_trial_with_its_file(tmp_path: Path) -> None:
    victim = sweep(tmp_path, by_lr).runs["trial_id"].iloc[0]
    record = tmp_path / "trials" / victim / "record.json"
    record.write_text("[" * 100_000)
    code, out, _ = polysweep("status", "made", "--store", tmp_path)
    assert code == 0 and f"failed: {victim}: {record}: damaged, not JSON: recursion limit exceeded" in out
