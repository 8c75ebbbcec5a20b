"""The cache: what is damaged is rebuilt, and what cannot be written costs only time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.sweeps.store.store import Store
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, by_lr, foreign, sweep


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


@pytest.mark.usefixtures("fresh_client")
def test_a_damaged_cache_is_said_and_made_anew(wandb_server: Wandb, tmp_path: Path, capsys: Any) -> None:
    wandb_server.load("p", foreign())
    cache = tmp_path / "cache"
    before = pull(ADDRESS, cache=cache, **MAPPED)
    (folder,) = cache.glob("*")
    for pattern in ("runs.parquet", "history-*.parquet"):
        (victim,) = folder.glob(pattern)
        victim.write_bytes(victim.read_bytes()[:-40])
        after = pull(ADDRESS, cache=cache, **MAPPED)
        assert f"warning: the cache {folder} is damaged and is rebuilt" in capsys.readouterr().err
        pd.testing.assert_frame_equal(before.runs, after.runs)
        assert before.history.equals(after.history)
