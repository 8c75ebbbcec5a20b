"""Where a launched sweep stands, also with damaged trials."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.planning.status import status_of
from polysweep.sweeps.store.local_files import LocalFiles
from polysweep.sweeps.store.store import Store
from tests.support.inprocess import polysweep
from tests.support.made import by_lr, sweep
from tests.support.made_sweeps import finish, ids, spec_of


def test_status_names_a_damaged_trial_with_its_file(tmp_path: Path) -> None:
    victim = sweep(tmp_path, by_lr).runs["trial_id"].iloc[0]
    record = tmp_path / "trials" / victim / "record.json"
    record.write_text("[" * 100_000)
    code, out, _ = polysweep("status", "made", "--store", tmp_path)
    assert code == 0 and f"failed: {victim}: {record}: damaged, not JSON: recursion limit exceeded" in out


def test_the_best_value_of_a_cell_is_that_of_its_trials_also_of_older_records(tmp_path: Path) -> None:
    """A record without extremes has them in its history; a diverged trial counts for none."""
    store, spec = Store(str(tmp_path)), spec_of(seeds=2)
    store.write_sweep(spec)
    first, second, third, fourth = ids(spec)
    record = {"outcome": "finished", "width": 1, "epoch": 1, "stalled": False}
    finish(store, first)
    store.write_record(second, {**record, "extremes": {"test/top1": [0.25, 0.75]}, "stalled": True})
    store.write_record(third, {**record, "outcome": "diverged", "extremes": {"test/top1": [0.25, 1.0]}})
    status = status_of(store.launched("tiny"), store)
    assert status["cells"] == [
        {"cell": {"rho": 0.1}, "counts": {"finished": 2}, "best": 0.75, "stalled": 1},
        {"cell": {"rho": 0.2}, "counts": {"diverged": 1, "new": 1}, "best": None},
    ]
    assert status["trials"][1] == {"trial_id": second, "outcome": "finished", "epoch": 1, "stalled": True}
    assert status["trials"][3] == {"trial_id": fourth, "outcome": "new", "epoch": 0}
    assert (status["stalled"], status["over"], status["launches"], status["gone"]) == (1, False, [], 0)


def test_a_look_reads_each_record_once_and_the_next_one_none_of_a_trial_that_has_ended_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed trial may be tried again and a new one begin: both are looked at again."""
    store, spec = Store(str(tmp_path)), spec_of(seeds=2)
    store.write_sweep(spec)
    first, second, third, fourth = ids(spec)
    for trial_id, outcome in {first: "finished", second: "diverged", third: "failed"}.items():
        store.write_record(trial_id, {"outcome": outcome, "width": 1, "epoch": 1, "stalled": False, "extremes": {}})
    reads: Counter[str] = Counter()
    read = LocalFiles._read

    def counted(files: LocalFiles, path: str) -> bytes:
        reads[Path(path).parent.name] += path.endswith("record.json")
        return read(files, path)

    monkeypatch.setattr(LocalFiles, "_read", counted)
    sweep, records = store.launched("tiny"), dict[str, Any]()
    before = status_of(sweep, store, records)
    assert {trial_id: reads[trial_id] for trial_id in ids(spec)} == {first: 1, second: 1, third: 1, fourth: 0}
    for trial_id in (third, fourth):
        store.write_record(trial_id, {"outcome": "finished", "width": 1, "epoch": 1, "stalled": True, "extremes": {}})
    after = status_of(sweep, store, records)
    assert {trial_id: reads[trial_id] for trial_id in ids(spec)} == {first: 1, second: 1, third: 2, fourth: 1}
    assert (before["counts"]["finished"], after["counts"]["finished"], after["stalled"]) == (1, 3, 2)
    assert after == status_of(sweep, Store(str(tmp_path))), "as a first look"


def test_trials_that_wait_while_k_was_measured_count_as_stacks_of_the_k_that_the_others_have(tmp_path: Path) -> None:
    """The launch's sweep.json is from before the measurement."""
    store, spec = Store(str(tmp_path)), spec_of(seeds=4)
    store.write_sweep(spec)
    before = status_of(store.launched("tiny"), store)["estimate"]["stacks"]
    for trial_id in ids(spec)[:4]:
        store.write_record(trial_id, {"outcome": "finished", "width": 4, "epoch": 1, "stalled": False, "extremes": {}})
    assert (before, status_of(store.launched("tiny"), store)["estimate"]["stacks"]) == (8, 1)
