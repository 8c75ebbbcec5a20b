"""The Store: atomic writes, claims, and one stack run against it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import TINY, records, wait_for

from sweeps import store as store_module
from sweeps import worker as worker_module
from sweeps.process import Process, _start_time
from sweeps.record import Job
from sweeps.store import Store, StoreError
from sweeps.worker import StackRun
from trainer.config import TrialConfig
from trainer.history import HISTORY_COLUMNS, TIMING_COLUMNS

ID = "0123456789abcdef"


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    assert store.read("a/b") is None
    store.write("a/b", b"one")
    store.write("a/b", b"two")
    assert store.read("a/b") == b"two"
    assert store.names("a") == ["b"], "nothing temporary stays"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    store.write("a/b", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.write("a/b", b"new")
    assert store.read("a/b") == b"old"
    assert store.names("a") == ["b"]


def test_history_keeps_every_bit_and_its_types(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    rows = [{**dict.fromkeys(HISTORY_COLUMNS), "epoch": 1, "step": 3, "train/loss": 0.1 + 0.2, "partial": False}]
    store.write_history(ID, rows)
    assert store.history(ID) == rows
    found = store.history(ID)[0]
    assert [type(found[n]) for n in ("epoch", "step", "train/loss", "val/loss", "partial")] == [
        int, int, float, type(None), bool,
    ]  # fmt: skip


def test_a_claim_is_exclusive_until_it_is_released(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    claim = store.claim(ID)
    assert claim is not None and claim.is_held()
    assert Store(str(tmp_path)).claim(ID) is None
    assert str(os.getpid()) in str(store.holder(ID))
    claim.release()
    assert store.holder(ID) is None
    second = store.claim(ID)
    assert second is not None and second.generation == 2
    assert not claim.is_held()


def _race(root: str, barrier: object, wins: object) -> None:
    store = Store(root)
    for index in range(50):
        barrier.wait()  # type: ignore[attr-defined]
        if store.claim(f"{index:016x}") is not None:
            wins.put(index)  # type: ignore[attr-defined]
    barrier.wait()  # type: ignore[attr-defined]


def test_of_four_processes_that_claim_at_once_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, wins = context.Barrier(4), context.Queue()
    racers = [context.Process(target=_race, args=(str(tmp_path), barrier, wins)) for _ in range(4)]
    for racer in racers:
        racer.start()
    won = sorted(wins.get(timeout=60) for _ in range(50))
    for racer in racers:
        racer.join()
    assert won == list(range(50))
    assert wins.empty()


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    code = f"from sweeps.store import Store; import os; Store({str(tmp_path)!r}).claim({ID!r}); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    store = Store(str(tmp_path))
    assert store.generation(ID) == 1
    assert store.holder(ID) is None
    assert store.claim(ID) is not None


def test_a_claim_of_another_machine_is_stale_when_its_heartbeat_stands_still_on_our_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    claim = store.claim(ID)
    assert claim is not None
    content = json.loads(claim.content())
    content["process"] |= {"boot": "another", "host": "node7"}
    store.write(claim.path, json.dumps(content).encode())
    now = time.monotonic()
    clock = [now]
    monkeypatch.setattr(store_module.time, "monotonic", lambda: clock[0])
    assert str(store.holder(ID)).startswith("node7")
    clock[0] = now + 59
    assert store.holder(ID) is not None
    content["beats"] += 1
    store.write(claim.path, json.dumps(content).encode())
    clock[0] = now + 100
    assert store.holder(ID) is not None, "it has beaten since"
    clock[0] = now + 161
    assert store.holder(ID) is None
    assert not claim.is_held() or store.claim(ID, over=1) is not None


def test_this_process_is_not_dead_and_a_finished_one_is() -> None:
    assert not Process.this().is_dead()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = Process(**{**vars(Process.this()), "pid": child.pid, "started": _start_time(child.pid)})
    assert not identity.is_dead()
    child.communicate(b"\n")
    assert identity.is_dead()


def test_damage_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write(f"trials/{ID}/record.json", b"{")
    with pytest.raises(StoreError, match=rf"{ID}/record\.json: damaged"):
        store.record(ID)
    store.write(f"trials/{ID}/record.json", b'{"format": 99}')
    with pytest.raises(StoreError, match="format 99"):
        store.record(ID)
    store.write(f"trials/{ID}/history.parquet", b"PAR")
    with pytest.raises(StoreError, match=rf"{ID}/history\.parquet: damaged"):
        store.history(ID)


@pytest.mark.parametrize(
    "content", ["null", "[]", '{"format": 1}', '{"format": 1, "outcome": "finish", "width": 1, "epoch": 1}',
                '{"format": 1, "outcome": "finished", "width": "x", "epoch": 1}'],
)  # fmt: skip
def test_a_record_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    store = Store(str(tmp_path))
    store.write(f"trials/{ID}/record.json", content.encode())
    with pytest.raises(StoreError, match=rf"{ID}/record\.json: "):
        store.state(ID)


@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "another trial's"])
def test_a_checkpoint_that_cannot_be_used_starts_the_trial_over_and_the_record_says_so(
    tmp_path: Path, damage: str
) -> None:
    finish(job(tmp_path / "whole", {}, {"seed": 1}))
    run = StackRun(job(tmp_path / "parts", {}, {"seed": 1}, checkpoint_seconds=0))
    run.advance()
    run.close()
    hit, other = sorted(records(tmp_path / "parts"))
    path = tmp_path / "parts" / "trials" / hit / "checkpoint.pt"
    whole = path.read_bytes()
    foreign = (tmp_path / "parts" / "trials" / other / "checkpoint.pt").read_bytes()
    damaged = {"truncated": whole[:-50], "empty": b"", "another trial's": foreign}
    path.write_bytes(damaged[damage]) if damage in damaged else path.unlink()
    for epoch in (1, 0):
        finish(job(tmp_path / "parts", {}, {"seed": 1}, epoch=epoch))
    assert histories(tmp_path / "parts") == histories(tmp_path / "whole")
    assert records(tmp_path / "parts")[hit]["notes"][0].startswith("started over: ")
    assert records(tmp_path / "parts")[other]["notes"] == []


def test_only_local_paths_are_taken() -> None:
    for root in ("memory://store", "nothing://at/all"):
        with pytest.raises(StoreError, match=root):
            Store(root)


# One stack against the Store.


def job(store: Path, *changes: dict, width: int = 2, **settings: object) -> Job:
    configs = [TrialConfig.parse({**TINY, **change}).canonical() for change in changes]
    return Job(str(store), tuple(configs), width, **{"epoch": 0, **settings})


def finish(job: Job) -> None:
    run = StackRun(job)
    try:
        while run.advance() is not None and not run.is_over:
            pass
    finally:
        run.close()


def histories(store: Path) -> dict[str, list[dict]]:
    found = {}
    for trial_id in records(store):
        rows = Store(str(store)).history(trial_id)
        found[trial_id] = [{k: v for k, v in row.items() if k not in TIMING_COLUMNS} for row in rows]
    return found


def test_a_finished_stack_leaves_config_record_history_checkpoint_and_no_claim(tmp_path: Path) -> None:
    finish(job(tmp_path, {}, {"seed": 1}))
    store = Store(str(tmp_path))
    for trial_id, record in records(tmp_path).items():
        assert record["outcome"] == "finished"
        assert (record["width"], record["epoch"], record["claim"]) == (2, 3, 1)
        assert record["provenance"]["threads"] == 1 and record["provenance"]["versions"]["torch"]
        assert TrialConfig.parse(store.config(trial_id) or {}).trial_id == trial_id
        assert [row["epoch"] for row in store.history(trial_id)] == [1, 2, 3]
        assert store.holder(trial_id) is None
        assert store.exists(f"trials/{trial_id}/checkpoint.pt")


def test_keep_none_removes_the_checkpoint_after_the_end(tmp_path: Path) -> None:
    finish(job(tmp_path, {}, {"seed": 1}, keep="none"))
    assert len(records(tmp_path)) == 2
    assert not list(tmp_path.glob("trials/*/checkpoint.pt"))


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("metric", [("test/loss", "minimize"), ("gamma/mean", "maximize")])
def test_keep_best_leaves_the_checkpoint_of_the_best_epoch(
    tmp_path: Path, interrupted: bool, metric: tuple[str, str]
) -> None:
    """Also where the best epoch lies before an interruption."""
    settings = {"keep": "best", "metric": metric[0], "goal": metric[1]}
    rows = [{"epochs": 6}, {"epochs": 6, "seed": 1}]
    if interrupted:
        run = StackRun(job(tmp_path, *rows, **settings))
        for _ in range(4):
            run.advance()
        run.close()
    finish(job(tmp_path, *rows, epoch=4 if interrupted else 0, **settings))
    for trial_id in records(tmp_path):
        values = [row[metric[0]] for row in Store(str(tmp_path)).history(trial_id)]
        kept = torch.load(tmp_path / "trials" / trial_id / "checkpoint.pt", weights_only=True)
        assert kept["epoch"] == 1 + values.index(min(values) if metric[1] == "minimize" else max(values))


def test_a_finished_trial_is_not_run_again(tmp_path: Path) -> None:
    finish(job(tmp_path, {}, {"seed": 1}))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("trials/*/history.parquet")}
    run = StackRun(job(tmp_path, {}, {"seed": 1}))
    assert run.advance() is None
    run.close()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("trials/*/history.parquet")} == before


def test_an_interrupted_stack_keeps_every_completed_epoch_and_continues_bitwise(tmp_path: Path) -> None:
    finish(job(tmp_path / "whole", {}, {"seed": 1}))
    run = StackRun(job(tmp_path / "parts", {}, {"seed": 1}, checkpoint_seconds=3600))
    run.advance()
    run.advance()
    run.close()
    assert {r["outcome"] for r in records(tmp_path / "parts").values()} == {"running"}
    assert {r["epoch"] for r in records(tmp_path / "parts").values()} == {2}
    states = [Store(str(tmp_path / "parts")).state(t) for t in records(tmp_path / "parts")]
    assert [(s.state, s.epoch) for s in states] == [("interrupted", 2)] * 2
    finish(job(tmp_path / "parts", {"seed": 1}, {}, epoch=2))
    assert histories(tmp_path / "parts") == histories(tmp_path / "whole")
    for record in records(tmp_path / "parts").values():
        assert [s["from_epoch"] for s in record["sessions"]] == [0, 2]


def test_what_is_due_is_stored_while_the_next_epoch_is_trained(tmp_path: Path) -> None:
    """The epoch in flight may last for ever; the one before it is safe after `checkpoint_seconds`."""
    run = StackRun(job(tmp_path, {"epochs": 50}, {"seed": 1, "epochs": 50}, checkpoint_seconds=0.2))
    run.advance()
    wait_for(lambda: all(r["epoch"] == 1 for r in records(tmp_path).values()), 10)
    run.close()


def test_history_beyond_the_checkpoint_is_dropped_on_continuing(tmp_path: Path) -> None:
    finish(job(tmp_path / "whole", {}, {"seed": 1}))
    run = StackRun(job(tmp_path / "parts", {}, {"seed": 1}))
    run.advance()
    run.close()
    store = Store(str(tmp_path / "parts"))
    for trial_id in records(tmp_path / "parts"):  # as after a crash between the two writes
        store.write_history(trial_id, Store(str(tmp_path / "whole")).history(trial_id)[:2])
    finish(job(tmp_path / "parts", {}, {"seed": 1}, epoch=1))
    assert histories(tmp_path / "parts") == histories(tmp_path / "whole")


def test_a_trial_that_has_moved_on_since_the_plan_is_left_for_the_next_one(tmp_path: Path) -> None:
    """Also when a crash came between checkpoint and record, and the record lags."""
    run = StackRun(job(tmp_path, {}, {"seed": 1}, checkpoint_seconds=0))
    run.advance()
    run.close()
    store = Store(str(tmp_path))
    lagging = sorted(records(tmp_path))[0]
    store.write_record(lagging, {**(store.record(lagging) or {}), "epoch": 0})
    finish(job(tmp_path, {}, {"seed": 1}, epoch=0))
    assert store.state(lagging).epoch == 1
    finish(job(tmp_path, {}, {"seed": 1}, epoch=1))
    assert {r["outcome"] for r in records(tmp_path).values()} == {"finished"}


@pytest.mark.parametrize("lr", [0.05, 1e30])
@pytest.mark.parametrize("moment", ["write_history", "write_checkpoint", "write_record"])
def test_a_kill_in_the_middle_of_the_last_save_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lr: float, moment: str
) -> None:
    """Of a trial that finishes and of one that diverges, before each of the writes of its end."""
    rows = [{"scheduler": "constant", "lr": lr, "epochs": 1}, {"scheduler": "constant", "lr": lr / 2, "epochs": 1}]
    finish(job(tmp_path / "whole", *rows))

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    run = StackRun(job(tmp_path / "parts", *rows))
    assert run._start()
    target = worker_module if moment == "write_checkpoint" else Store
    with monkeypatch.context() as patch:
        patch.setattr(target, moment, killed)
        with pytest.raises(Killed):
            run.advance()
        run._unsaved.clear()  # a killed process saves nothing more
        run.close()
    for epoch in (0, 1):
        finish(job(tmp_path / "parts", *rows, epoch=epoch))
    assert histories(tmp_path / "parts") == histories(tmp_path / "whole")
    outcomes = {t: (r["outcome"], r["epoch"], r["diverged"]) for t, r in records(tmp_path / "parts").items()}
    assert outcomes == {t: (r["outcome"], r["epoch"], r["diverged"]) for t, r in records(tmp_path / "whole").items()}


def test_a_claim_made_since_the_plan_is_not_taken_over(tmp_path: Path) -> None:
    """Two launches read `new`; the faster one claims; the other's job says that it saw no claim."""
    slow = Store(str(tmp_path))
    seen = slow.state(ID)
    assert Store(str(tmp_path)).claim(ID) is not None
    assert seen.generation == 0
    assert slow.claim(ID, over=seen.generation) is None


def test_a_worker_whose_claim_was_taken_over_writes_nothing_more(tmp_path: Path) -> None:
    run = StackRun(job(tmp_path, {}, {"seed": 1}))
    run.advance()
    store = Store(str(tmp_path))
    lost = sorted(records(tmp_path))[0]
    kept = sorted(records(tmp_path))[1]
    taken = store.claim(lost, over=1)
    assert taken is not None
    store.write_record(lost, {**(store.record(lost) or {}), "claim": 2, "mark": "the new holder's"})
    before = (tmp_path / "trials" / lost / "record.json").read_bytes()
    while run.advance() is not None and not run.is_over:
        pass
    run.close()
    assert (tmp_path / "trials" / lost / "record.json").read_bytes() == before
    assert taken.is_held() and store.holder(lost) is not None
    assert records(tmp_path)[kept]["outcome"] == "finished"


def test_an_exception_of_the_training_is_kept_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer import stack

    def broken(*_: object) -> None:
        raise RuntimeError("the dog ate it")

    monkeypatch.setattr(stack.Stack, "evaluate", broken)
    finish(job(tmp_path, {}, {"seed": 1}))
    for record in records(tmp_path).values():
        assert record["outcome"] == "failed"
        assert "the dog ate it" in record["error"] and "Traceback" in record["error"]


def test_a_diverged_trial_records_where(tmp_path: Path) -> None:
    rows = [{"scheduler": "constant", "lr": 0.05}, {"scheduler": "constant", "lr": 1e30}]
    finish(job(tmp_path, *rows))
    by_outcome = {r["outcome"]: r for r in records(tmp_path).values()}
    assert set(by_outcome) == {"finished", "diverged"}
    assert by_outcome["diverged"]["diverged"]["epoch"] == 1
    history = Store(str(tmp_path)).history(by_outcome["diverged"]["trial_id"])
    assert [row["partial"] for row in history] == [True]
    assert by_outcome["diverged"]["diverged"]["step"] == history[0]["step"]
