"""A trial's checkpoints in the Store: the newest one, and the one before it for when that is damaged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from polysweep.sweeps.store.files import Fence, NewerFormatError, StoreError
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import with_current_names

NEWEST: Final = "checkpoint.pt"
BEFORE: Final = "checkpoint-before.pt"
log = logging.getLogger("polysweep.worker")


def write_checkpoint(
    store: Store, trial_id: str, checkpoint: Mapping[str, Any], fence: Fence | None, *, keeps_before: bool = True
) -> None:
    """Replace the newest checkpoint; the one that it replaces stays as the one before, if it `keeps_before`.

    `fence` as in `Files.write`. The checkpoint names the claim's generation: no two claims write the same bytes.
    """
    from polysweep.trainer.checkpoint import dumps

    folder = f"trials/{trial_id}"
    content = dumps({**checkpoint, "claim": fence.generation if fence else 0})
    keep_as = f"{folder}/{BEFORE}" if keeps_before else None
    store.files.write(f"{folder}/{NEWEST}", content, keep_as=keep_as, fence=fence)


def put_right(store: Store, trial_id: str, checkpoint: Mapping[str, Any] | None, fence: Fence) -> None:
    """Keep only what a trial continues from, so that a damaged file is not read again."""
    if checkpoint is None:
        remove_checkpoints(store, trial_id, keep_newest=False)
    else:
        write_checkpoint(store, trial_id, checkpoint, fence, keeps_before=False)


def remove_checkpoints(store: Store, trial_id: str, *, keep_newest: bool) -> None:
    """Remove the one before, which an ended trial does not need any more, and the newest unless it is to stay."""
    store.files.remove(f"trials/{trial_id}/{BEFORE}")
    if not keep_newest:
        store.files.remove(f"trials/{trial_id}/{NEWEST}")


def read_checkpoint(store: Store, record: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """The checkpoint that a trial continues from, and notes for its record on what could not be used.

    A checkpoint is refused if its checksum is wrong or if it belongs to another trial; then the one before it is
    taken, and without that the trial starts over: None. Raises `StoreError` if the record contradicts a checkpoint
    that is whole, `NewerFormatError` if a newer version has written it.
    """
    from polysweep.trainer.checkpoint import CHECKPOINT_FORMAT, NewerError

    refused = []
    for name in (NEWEST, BEFORE):
        path = f"trials/{record['trial_id']}/{name}"
        content = store.files.read(path)
        if content is None:
            continue
        try:
            checkpoint = _checked(content, record["trial_id"])
        except NewerError as error:
            raise NewerFormatError(store.files.path(path), error.args[0], CHECKPOINT_FORMAT) from None
        except ValueError as error:
            refused.append(f"{path} is damaged: {error}")
            log.warning("%s", refused[-1])
            continue
        if checkpoint["width"] != record["width"]:
            raise StoreError(f"{path} has K = {checkpoint['width']}, the trial's record.json has {record['width']}")
        if name == BEFORE and not refused and record["epoch"] > checkpoint["epoch"]:
            refused = [f"trials/{record['trial_id']}/{NEWEST} is missing"]
        went_back = f"went back to epoch {checkpoint['epoch']}: "
        return checkpoint, [went_back + note for note in refused]
    if not refused and record["epoch"]:
        refused = ["there was no checkpoint"]
    return None, [f"started over: {'; '.join(refused)}"] if refused else []


def _checked(content: bytes, trial_id: str) -> dict[str, Any]:
    from polysweep.trainer.checkpoint import loads

    checkpoint = loads(content)
    if checkpoint["trial_id"] != trial_id:
        raise ValueError(f"belongs to trial {checkpoint['trial_id']!r}")
    return {**checkpoint, "history": [with_current_names(row) for row in checkpoint["history"]]}
