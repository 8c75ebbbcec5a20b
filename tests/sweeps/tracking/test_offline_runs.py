"""Offline runs: written whole, and `wandb sync`, the real one, gives the server every row once."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.commands.retry import retry
from polysweep.sweeps.store.record import BEGUN
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking import offline_runs as offline
from polysweep.sweeps.tracking.offline_runs import offline_run, offline_runs, remove_unfinished, write_offline
from polysweep.sweeps.tracking.sync import OfflineWriter, complete, upload
from tests.support.loopback_wandb import Wandb
from tests.support.project import ROOT
from tests.support.wandb_runs import CONFIG, FLAT, HISTORY, assert_complete, described, put
from tests.support.wandb_runs import store as store

pytestmark = pytest.mark.usefixtures("fresh_client")


def wandb_sync(folder: Path) -> str:
    command = [Path(sys.executable).with_name("wandb"), "sync", *sorted(folder.glob("offline-run-*"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=folder)
    return done.stdout + done.stderr


def epochs_of(server: Wandb) -> list[int]:
    (run,) = server.dump()["runs"].values()
    return [json.loads(line)["epoch"] for line in run["history"]]


@pytest.mark.parametrize("is_synced_between", [True, False])
def test_a_trial_that_is_tried_again_has_every_row_once(
    is_synced_between: bool, store: Store, wandb_server: Wandb
) -> None:
    put(store, 1, "failed")
    complete(FLAT, store, "offline")
    if is_synced_between:
        wandb_sync(store.wandb_folder)
        assert epochs_of(wandb_server) == [1]
    assert retry(store, {CONFIG.trial_id: 1}) == 1 and offline_runs(store.wandb_folder) == set()
    put(store, 3)
    complete(FLAT, store, "offline")
    assert offline_runs(store.wandb_folder) == {CONFIG.trial_id}
    wandb_sync(store.wandb_folder)
    assert epochs_of(wandb_server) == [1, 2, 3]
    counts = upload(store, FLAT)
    assert counts.is_whole and (counts.complete, counts.uploaded) == (1, 0)


def test_what_polysweep_has_uploaded_wandb_sync_leaves_out(store: Store, wandb_server: Wandb) -> None:
    put(store, 3)
    complete(FLAT, store, "offline")
    assert upload(store, FLAT).uploaded == 1
    assert "Skipped 1 synced run" in wandb_sync(store.wandb_folder)
    assert epochs_of(wandb_server) == [1, 2, 3]


def test_a_trial_that_was_logged_to_the_server_gets_no_offline_run(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server may have some of its rows, and `wandb sync` would append all of them."""
    put(store, 3, wandb=BEGUN)
    complete(FLAT, store, "offline")
    assert offline_run(store.wandb_folder, CONFIG.trial_id) is None
    said = capsys.readouterr().err
    assert f"1 trials were logged to the W&B server before ({CONFIG.trial_id})" in said and "polysweep sync" in said


def test_rows_that_are_on_the_server_twice_are_named(store: Store, wandb_server: Wandb, monkeypatch: Any) -> None:
    put(store, 3)
    rows = [json.dumps({"_step": epoch, "epoch": epoch}) for epoch in (1, 1, 2, 3)]
    run = {"name": CONFIG.trial_id, "history": rows, "complete": True, "exit_code": 0}
    wandb_server.load("polysweep", [{**run, "summary": json.dumps({"outcome": "finished"})}])
    counts = upload(store, FLAT)
    assert not counts.is_whole and counts.repeats == (CONFIG.trial_id,)
    assert f"1 with rows that are there more than once, which W&B's client cannot take back: {CONFIG.trial_id}" in str(
        counts
    )


def test_the_offline_writer_looks_at_the_store_once_for_all_that_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many trials end while it writes: a look at every sweep's list for each would be quadratic."""
    configs = [CONFIG.model_copy(update={"seed": seed}) for seed in range(6)]
    for config in configs:
        put(store, 3, config=config)
    flats = {config.trial_id: config.flat() for config in configs}
    looks: list[int] = []
    first, go_on = threading.Event(), threading.Event()

    def sweeps_of(trial_ids: set[str]) -> dict[str, list[str]]:
        looks.append(len(trial_ids))
        return {trial_id: [] for trial_id in trial_ids}

    def flat_of(trial_id: str) -> Mapping[str, Any]:
        first.set()
        assert go_on.wait(60)
        return flats[trial_id]

    monkeypatch.setattr(store, "sweeps_of", sweeps_of)
    writer = OfflineWriter(store, flat_of, ["small"])
    ids: list[str] = list(flats)
    writer.ended(ids[0])
    assert first.wait(60)
    for trial_id in ids[1:]:
        writer.ended(trial_id)
    go_on.set()
    writer.close(wait=True)
    assert looks == [1, 5] and offline_runs(store.wandb_folder) == set(ids)


def test_a_writer_that_is_told_to_drop_what_waits_ends(store: Store) -> None:
    put(store, 3)
    writer = OfflineWriter(store, FLAT.__getitem__)
    writer.close(wait=False)
    writer.ended(CONFIG.trial_id)
    writer._thread.join(60)
    assert not writer._thread.is_alive() and offline_runs(store.wandb_folder) == set()


def test_an_offline_run_is_complete_and_readable(tmp_path: Path) -> None:
    written = write_offline(tmp_path / "wandb", described(CONFIG, ["small"]), HISTORY, "finished", 1.8e9)
    assert written.parent == tmp_path / "wandb"
    assert_complete(written, CONFIG, epochs=3, exit_code=0)
    assert offline_runs(tmp_path / "wandb") == {CONFIG.trial_id}
    assert [path.name for path in (tmp_path / "wandb").iterdir()] == [written.name], "nothing else lies there"


def test_writing_a_run_again_changes_nothing(tmp_path: Path) -> None:
    def files() -> list[tuple[Path, int]]:
        """Without the logs of wandb's own service, which writes them when it likes."""
        logs = ("debug-core.log", "debug-internal.log")
        kept = (path for path in tmp_path.rglob("*") if path.name not in logs)
        return sorted((path, path.stat().st_mtime_ns) for path in kept)

    first = write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9)
    before = files()
    assert write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9) == first
    assert files() == before


def test_of_two_writers_of_one_run_one_wins(tmp_path: Path) -> None:
    """The second comes while the first is between looking and renaming."""
    winner: list[Path] = []

    def first(live: Any, outcome: str) -> None:
        monkeypatch.undo()
        close(live, outcome)
        winner.append(write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9))

    close = offline.close_run
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(offline, "close_run", first)
        assert write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9) == winner[0]
    assert [path.name for path in tmp_path.iterdir()] == [winner[0].name]
    assert_complete(winner[0], CONFIG, 3, 0)


def test_what_a_killed_writer_left_is_removed_and_written_again(tmp_path: Path) -> None:
    code = (
        "import sys, os, wandb, polysweep.sweeps.tracking.offline_runs as t; from pathlib import Path\n"
        "from tests.support.wandb_runs import CONFIG, HISTORY, described\n"
        "t.close_run = lambda *_: os._exit(1)\n"
        "t.write_offline(Path(sys.argv[1]), described(CONFIG), HISTORY, 'finished', 1.8e9)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=False, timeout=60)
    assert offline_runs(tmp_path) == set()
    assert list(tmp_path.glob(".aside-*"))
    with next(tmp_path.glob(".aside-*/lock")).open() as lock:  # as long as its writer lives, it stays
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_unfinished(tmp_path)
        assert list(tmp_path.iterdir())
    remove_unfinished(tmp_path)
    assert not list(tmp_path.iterdir())
    assert_complete(write_offline(tmp_path, described(CONFIG), HISTORY, "finished", 1.8e9), CONFIG, 3, 0)
