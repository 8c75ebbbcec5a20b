"""The cache of a Store: what has changed is read, and what is damaged is made anew."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from tests.support.made import SPEC, by_lr, cell, sweep

# The cache of a Store.


def test_a_cache_notices_every_changed_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(tmp_path, lambda c: "new" if c.seed == 2 else by_lr(c))
    store = Store(str(tmp_path))
    read: list[str] = []
    histories = Store.histories

    def counted(self: Store, trial_ids: Any) -> Any:
        asked = list(trial_ids)
        read.extend(asked)
        return histories(self, asked)

    monkeypatch.setattr(Store, "histories", counted)
    before = pull("made", store=store, cache=tmp_path / "cache")
    assert read == [], "all that had ended was in the cache"
    trial = before.runs[before.runs["outcome"] == "finished"]["trial_id"].iloc[0]
    rows = store.history(trial)
    for row in rows:
        row["test/top1"] += 0.01
    store.write_history(trial, rows)
    after = pull("made", store=store, cache=tmp_path / "cache")
    assert read == [trial]
    best = dict(zip(before.runs["trial_id"], before.runs["best/test/top1"], strict=True))
    changed = dict(zip(after.runs["trial_id"], after.runs["best/test/top1"], strict=True))
    assert changed.pop(trial) == best.pop(trial) + 0.01
    assert {k: v for k, v in changed.items() if v is not pd.NA} == {k: v for k, v in best.items() if v is not pd.NA}
    assert after.history.equals(pull("made", store=store, cache=tmp_path / "fresh").history)


def test_a_trial_that_has_started_since_is_read(tmp_path: Path) -> None:
    sweep(tmp_path, lambda c: "new" if c.seed == 2 else by_lr(c))
    first = select(pull("made", store=str(tmp_path), cache=tmp_path / "cache"))
    assert cell(first, 0.1, "polyak")["missing"] == 1
    whole = sweep(tmp_path, by_lr)
    assert cell(select(whole), 0.1, "polyak")["n"] == 3 and len(whole.history) == 72


def test_another_metric_of_the_same_sweep_is_scored_anew(tmp_path: Path) -> None:
    first = sweep(tmp_path, by_lr)
    text = json.dumps({**SPEC, "metric": {"name": "test/loss", "goal": "minimize"}})
    Store(str(tmp_path)).write_sweep(SweepSpec.parse(text, "made.yaml"))
    second = pull("made", store=str(tmp_path), cache=tmp_path / "cache")
    assert second.protocol.metric == "test/loss"
    assert second.runs["best_epoch"].tolist() == first.runs["best_epoch"].tolist()


def test_a_store_on_an_object_store_is_read_through_the_same_cache(root: str, tmp_path: Path) -> None:
    sweep(tmp_path / "made", by_lr)
    local, remote = Store(str(tmp_path / "made")), Store(root)
    spec = SweepSpec.parse(local.launched("made").text, "made.yaml")
    remote.write_sweep(spec)
    for trial in spec.trials[:6]:
        remote.write_history(trial.trial_id, local.history(trial.trial_id))
        remote.write_record(trial.trial_id, local.record(trial.trial_id) or {})
    first = pull("made", store=remote, cache=tmp_path / "cache")
    assert first.runs["outcome"].tolist() == ["finished"] * 6 + ["new"] * 18
    stamps = remote.stamps([trial.trial_id for trial in spec.trials])
    assert len(stamps) == 6 and stamps == remote.stamps([trial.trial_id for trial in spec.trials])
    victim = spec.trials[0].trial_id
    rows = remote.history(victim)
    rows[1]["test/top1"] = 0.123
    remote.write_history(victim, rows)
    assert remote.stamps([victim])[victim] != stamps[victim]
    assert pull("made", store=remote, cache=tmp_path / "cache").history["test/top1"][1] == 0.123


def test_a_damaged_cache_of_a_store_is_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sweep(tmp_path, by_lr)
    (folder,) = (tmp_path / "cache").glob("*")
    (folder / "runs.parquet").write_bytes(b"PAR1 nonsense")
    after = pull("made", store=str(tmp_path), cache=tmp_path / "cache")
    assert f"warning: the cache {folder} is damaged and is rebuilt" in capsys.readouterr().err
    pd.testing.assert_frame_equal(before.runs, after.runs)


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(tmp_path, by_lr)
    (tmp_path / "blocked").write_text("")
    found = pull("made", store=str(tmp_path), cache=tmp_path / "blocked")
    assert len(found.history) == 72 and "cannot be written" in capsys.readouterr().err


def test_many_small_changes_leave_a_small_cache_and_the_truth(tmp_path: Path) -> None:
    """Each change is a shard of its own, until there are eight of them."""
    pulled = sweep(tmp_path, by_lr)
    store = Store(str(tmp_path))
    (folder,) = (tmp_path / "cache").glob("*")
    shards = set()
    for number, trial in enumerate([*pulled.runs["trial_id"][:11], *pulled.runs["trial_id"][:2]]):
        rows = store.history(trial)
        rows[1]["test/top1"] = number / 100
        store.write_history(trial, rows)
        pulled = pull("made", store=store, cache=tmp_path / "cache")
        shards.add(len(list(folder.glob("history-*"))))
    assert max(shards) == 8 and 1 in shards
    fresh = pull("made", store=store, cache=tmp_path / "fresh")
    pd.testing.assert_frame_equal(pulled.runs, fresh.runs)
    assert pulled.history.equals(fresh.history)
    assert pulled.columns(["test/top1"]).equals(fresh.columns(["test/top1"]))


def test_two_processes_share_a_cache(tmp_path: Path) -> None:
    sweep(tmp_path, by_lr)
    code = (
        "import sys\nfrom polysweep import pull\n"
        "for _ in range(15):\n"
        "    found = pull('made', store=sys.argv[1], cache=sys.argv[1] + '/cache')\n"
        "    assert len(found.runs) == 24 and found.runs['outcome'].tolist() == ['finished'] * 24\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path], stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    store = Store(str(tmp_path))
    while any(process.poll() is None for process in processes):
        trial = store.launched("made").trials[0].trial_id
        store.write_history(trial, store.history(trial))
    assert [process.communicate()[1] for process in processes] == ["", ""]
