"""Files in an object store: a conditional PUT refuses who is superseded, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from polysweep.sweeps.store.checkpoints import write_checkpoint
from polysweep.sweeps.store.files import NotOursError, StoreError
from polysweep.sweeps.store.object_files import ObjectFiles
from polysweep.sweeps.store.store import Store
from tests.support.claimed import ID, RECORD, contents, write_all


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


def test_a_bucket_that_is_not_there_is_named(s3: str) -> None:
    with pytest.raises(StoreError, match="no-such-bucket-anywhere"):
        Store("s3://no-such-bucket-anywhere/store").check_writable()
    Store(f"{s3}/store").check_writable()


def test_a_read_is_one_request_also_of_what_is_not_there(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks for the request to stop every two seconds, and a status reads every record."""
    from aiobotocore.client import AioBaseClient

    files, requests = ObjectFiles(f"{s3}/store"), list[str]()
    files.write("present", b"1")
    send = AioBaseClient._make_api_call

    async def counted(client: Any, operation: str, parameters: Any) -> Any:
        requests.append(operation)
        return await send(client, operation, parameters)

    monkeypatch.setattr(AioBaseClient, "_make_api_call", counted)
    assert files.read("absent") is None
    assert files.read("present") == b"1"
    assert files.read_many(["present", "present"]) == {"present": b"1"}
    assert set(requests) == {"GetObject"} and len(requests) <= 4
