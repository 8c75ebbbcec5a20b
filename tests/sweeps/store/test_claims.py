"""One lease per stack, and writes of a superseded worker that the storage itself refuses."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.job import Job
from polysweep.sweeps.scheduling.job_queue import JobQueue
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.checkpoints import write_checkpoint
from polysweep.sweeps.store.claims import Claim
from polysweep.sweeps.store.files import Files, NotOursError, StoreError
from polysweep.sweeps.store.record import mark_wandb
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker import heartbeat as watch_module
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.history import HISTORY_COLUMNS

ID = "0123456789abcdef"
ROW = {**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": 1, "step": 9, "partial": False}
RECORD = {"outcome": "running", "width": 1, "epoch": 1}


def write_all(store: Store, claim: Claim, epochs: int) -> None:
    """A save: history, checkpoint, record."""
    store.write_history(ID, [{**ROW, "epoch": epoch + 1} for epoch in range(epochs)], claim.fence)
    write_checkpoint(store, ID, {"trial_id": ID, "epoch": epochs}, claim.fence)
    store.write_record(ID, {**RECORD, "epoch": epochs}, claim.fence)


def contents(store: Store) -> dict[str, bytes | None]:
    names = ("history.parquet", "checkpoint.pt", "record.json")
    return {name: store.files.read(f"trials/{ID}/{name}") for name in names}


WRITES: list[Callable[[Store, Claim], None]] = [
    lambda store, claim: store.write_history(ID, [ROW], claim.fence),
    lambda store, claim: write_checkpoint(store, ID, {"trial_id": ID}, claim.fence),
    lambda store, claim: store.write_record(ID, RECORD, claim.fence),
]


@pytest.mark.parametrize("write", WRITES, ids=["history", "checkpoint", "record"])
def test_every_write_of_a_superseded_claim_is_refused(root: str, write: Callable[[Store, Claim], None]) -> None:
    old, new = Store(root), Store(root)
    superseded = old.claim(ID)
    assert superseded is not None
    write_all(old, superseded, 1)
    successor = new.claim(ID, supersedes=1)
    assert successor is not None
    write_all(new, successor, 2)
    before = contents(new)
    with pytest.raises(NotOursError, match="another process has taken over"):
        write(old, superseded)
    assert contents(new) == before
    write_all(new, successor, 3)


def test_locally_the_storage_refuses_before_the_successor_has_written_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the middle of a write: the data is on the disk, the rename is yet to come."""
    store = Store(str(tmp_path))
    superseded = store.claim(ID)
    assert superseded is not None
    write_all(store, superseded, 1)
    before = contents(store)
    real, taken = os.fsync, []

    def overtaken(file: int) -> None:
        real(file)
        if not taken:
            taken.append(True)
            taken.append(Store(str(tmp_path)).claim(ID, supersedes=1))

    monkeypatch.setattr(os, "fsync", overtaken)
    with pytest.raises(NotOursError):
        store.write_record(ID, {**RECORD, "epoch": 7}, superseded.fence)
    assert taken[1] is not None and contents(store) == before
    assert [name for name in store.files.names(f"trials/{ID}") if name.startswith(".")] == [
        taken[1].fence.path.rpartition("/")[2]
    ], "nothing of the superseded writer stays"


def test_an_object_store_lets_the_holder_go_on_after_an_answer_was_lost(s3: str) -> None:
    """The holder's own write is in the store, but it never heard of it: its next one is not refused."""
    store = Store(f"{s3}/store")
    claim = store.claim(ID)
    assert claim is not None
    store.write_record(ID, RECORD, claim.fence)
    claim.fence.tags["record.json"] = '"0123456789abcdef0123456789abcdef"'  # of what it thinks is there
    store.write_record(ID, {**RECORD, "epoch": 2}, claim.fence)
    assert (store.record(ID) or {})["epoch"] == 2


def test_in_an_object_store_a_refused_holder_changes_nothing_however_late_its_successor_writes(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor claims and writes between the refusal and the look at who holds the trial."""
    old, new = Store(f"{s3}/store"), Store(f"{s3}/store")
    superseded = old.claim(ID)
    assert superseded is not None
    write_all(old, superseded, 1)
    write_all(old, superseded, 2)
    superseded.fence.tags["record.json"] = superseded.fence.tags["checkpoint.pt"] = '"0"'  # a lost answer
    real, taken = old.files._tags, []  # type: ignore[attr-defined]

    def overtaken(folder: str) -> Any:
        found = real(folder)
        if not taken:
            taken.append(new.claim(ID, supersedes=1))
            write_all(new, taken[0], 3)
        return found

    monkeypatch.setattr(old.files, "_tags", overtaken)
    with pytest.raises(NotOursError):
        old.write_record(ID, {**RECORD, "epoch": 9}, superseded.fence)
    before = {**contents(new), "before": new.files.read(f"trials/{ID}/checkpoint-before.pt")}
    with pytest.raises(NotOursError):
        write_checkpoint(old, ID, {"trial_id": ID, "epoch": 9}, superseded.fence)
    assert {**contents(new), "before": new.files.read(f"trials/{ID}/checkpoint-before.pt")} == before


def test_a_note_of_the_server_never_undoes_what_a_worker_has_written(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    claim = store.claim(ID)
    assert claim is not None
    store.write_record(ID, {**RECORD, "outcome": "failed"}, claim.fence)
    mark_wandb(Store(str(tmp_path)), ID, "online", store.claims.lease())
    assert "wandb" not in (store.record(ID) or {}), "somebody runs it"
    claim.release()
    mark_wandb(store, ID, "online", store.claims.lease())
    assert (store.record(ID) or {})["wandb"] == "online"


def test_a_save_asks_for_no_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    claim = store.claim(ID)
    assert claim is not None

    def refuse(*_: object) -> None:
        raise AssertionError("a folder was listed")

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    write_all(store, claim, 1)


def job(root: str, count: int) -> Job:
    values = {"task": "digits", "model": "mlp", "optimizer": "usam", "scheduler": "polyak", "rho": 0.1, "epochs": 2}
    configs = tuple(TrialConfig.parse({**values, "seed": seed}).canonical() for seed in range(count))
    return Job(root, configs, count, checkpoint_seconds=0)


def test_a_stack_of_any_width_has_one_heartbeat(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "HEARTBEAT_SECONDS", 3600.0)
    run = StackRun(job(root, 5))
    run.advance()
    store = Store(root)
    (lease,) = store.files.names("leases")
    claims = [json.loads(store.files.read(f"trials/{i}/claim-1.json") or b"") for i in store.files.names("trials")]
    assert len(claims) == 5 and {f"{claim['lease']}.json" for claim in claims} == {lease}
    written: list[str] = []
    real = Files.write

    def noted(self: Files, path: str, *args: Any, **options: Any) -> None:
        written.append(path)
        real(self, path, *args, **options)

    monkeypatch.setattr(Files, "write", noted)
    assert run._lease is not None
    run._lease.beat()
    assert written == [f"leases/{lease}"]
    run.close()
    assert not store.files.names("leases")
    assert {store.state(trial_id).state for trial_id in store.files.names("trials")} == {"interrupted"}


def test_a_waiting_launch_reads_only_what_can_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    values = {"task": "digits", "model": "mlp", "optimizer": "usam", "scheduler": "polyak", "epochs": 2}
    spec = SweepSpec.parse(json.dumps({"parameters": {k: {"value": v} for k, v in values.items()} | {
        "rho": {"values": [0.1, 0.2, 0.3, 0.4]}}}), "x.yaml")  # fmt: skip
    store.write_sweep(spec)
    *ended, going = [trial.trial_id for trial in spec.trials]
    for trial_id in ended:
        store.write_record(trial_id, {"outcome": "finished", "width": 1, "epoch": 2})
    claim = store.claim(going)
    assert claim is not None
    store.write_record(going, {**RECORD, "claim": 1}, claim.fence)
    supply = JobQueue(spec, Store(str(tmp_path)), "")
    assert [state.state for state in supply.states().values()] == ["finished"] * 3 + ["running"]
    touched: list[str] = []
    for name in ("_read", "_names"):
        real = getattr(type(store.files), name)

        def noted(self: Files, path: str, real: Any = real) -> Any:
            touched.append(path.removeprefix(f"{tmp_path}/"))
            return real(self, path)

        monkeypatch.setattr(type(store.files), name, noted)
    assert [state.state for state in supply.states().values()] == ["finished"] * 3 + ["running"]
    lease = f"leases/{claim.lease.id}.json"
    assert sorted(touched) == sorted(
        [f"trials/{going}/record.json", f"trials/{going}/claim-1.json", lease, f"sweeps/{spec.name}/ended"]
    )


# a file system without hard links


@pytest.fixture(params=[errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def no_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_links")
def test_a_store_without_hard_links_works(tmp_path: Path) -> None:
    store = Store(str(tmp_path), patience=3600)
    claim = store.claim(ID)
    assert claim is not None and Store(str(tmp_path)).claim(ID) is None
    write_all(store, claim, 1)
    write_all(store, claim, 2)
    assert "checkpoint-before.pt" in store.files.names(f"trials/{ID}")
    run = StackRun(job(str(tmp_path / "other"), 2))
    while run.advance() is not None and not run.is_over:
        pass
    run.close()
    other = Store(str(tmp_path / "other"))
    assert {other.state(trial_id).state for trial_id in other.files.names("trials")} == {"finished"}


@pytest.mark.usefixtures("no_links")
def test_without_links_a_file_whose_content_cannot_be_written_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real, calls = Store(str(tmp_path)), os.fsync, []

    def full(file: int) -> None:
        calls.append(file)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        store.files.create("a/b", b"content")
    assert store.files.names("a") == []
    assert store.files.create("a/b", b"content") and not store.files.create("a/b", b"other")


# leftovers


def test_a_launch_removes_what_killed_ones_have_left_and_nothing_of_living_ones(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    living, dead = store.claims.lease(), store.claims.lease()
    content = json.loads(dead.content())
    content["process"] |= {"pid": 1, "started": 1}
    store.files.write(dead.path, json.dumps(content).encode())
    for folder in (".", "sweeps/tiny/points", f"trials/{ID}"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for age in ("0", "1"):
            (tmp_path / folder / f".record.json.{age * 32}").touch()
        os.utime(tmp_path / folder / f".record.json.{'0' * 32}", (1, 1))
    (tmp_path / "trials" / ID / ".fence-1-ab").mkdir()
    os.utime(tmp_path / "trials" / ID / ".fence-1-ab", (1, 1))
    store.remove_leftovers("tiny", [ID])
    assert store.files.names("leases") == [f"{living.id}.json"]
    assert [path.name[-1] for path in tmp_path.rglob(".*")] == ["1"] * 3, "a young one may be being written"
