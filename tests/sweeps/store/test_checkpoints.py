"""A trial's checkpoints: the newest one, and the one before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.store.checkpoints import BEFORE, NEWEST, read_checkpoint, remove_checkpoints, write_checkpoint
from polysweep.sweeps.store.files import NewerFormatError, StoreError
from polysweep.sweeps.store.store import Store
from polysweep.trainer.checkpoint import CHECKPOINT_FORMAT
from tests.support.claimed import ID, write_all


def test_a_checkpoint_of_a_newer_version_is_not_taken_for_damage(tmp_path: Path) -> None:
    import torch

    from polysweep.sweeps.store.checkpoints import read_checkpoint

    store = Store(str(tmp_path))
    torch.save({"format": 99}, tmp_path / "newer.pt")
    store.files.write("trials/ab/checkpoint.pt", (tmp_path / "newer.pt").read_bytes())
    with pytest.raises(NewerFormatError, match=r"ab/checkpoint\.pt has format 99"):
        read_checkpoint(store, {"trial_id": "ab", "width": 1, "epoch": 3})


def test_the_newest_checkpoint_that_is_whole_is_read_and_what_was_not_is_noted(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    record = {"trial_id": ID, "width": 1, "epoch": 0}
    assert read_checkpoint(store, record) == (None, [])
    assert read_checkpoint(store, {**record, "epoch": 2}) == (None, ["started over: there was no checkpoint"])
    for epoch in (1, 2):
        checkpoint = {"format": CHECKPOINT_FORMAT, "trial_id": ID, "width": 1, "epoch": epoch, "history": []}
        write_checkpoint(store, ID, checkpoint, None)
    newest, notes = read_checkpoint(store, {**record, "epoch": 2})
    assert (newest or {})["epoch"] == 2 and notes == []
    with pytest.raises(StoreError, match=rf"^trials/{ID}/{NEWEST} has K = 1, the trial's record.json has 4$"):
        read_checkpoint(store, {**record, "width": 4})
    store.files.remove(f"trials/{ID}/{NEWEST}")
    before, notes = read_checkpoint(store, {**record, "epoch": 2})
    assert (before or {})["epoch"] == 1
    assert notes == [f"went back to epoch 1: trials/{ID}/{NEWEST} is missing"]


@pytest.mark.parametrize(("keep_newest", "left"), [(True, [NEWEST]), (False, [])])
def test_a_trial_that_has_ended_keeps_the_newest_checkpoint_or_none(
    tmp_path: Path, keep_newest: bool, left: list[str]
) -> None:
    store = Store(str(tmp_path))
    claim = store.claim(ID)
    assert claim is not None
    for epochs in (1, 2):
        write_all(store, claim, epochs)
    assert {NEWEST, BEFORE} <= set(store.files.names(f"trials/{ID}"))
    remove_checkpoints(store, ID, keep_newest=keep_newest)
    assert [name for name in store.files.names(f"trials/{ID}") if name in (NEWEST, BEFORE)] == left
