"""`launch --retry-failed`: failed trials become interrupted ones, which go on from their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from polysweep.sweeps.store.checkpoints import BEFORE, NEWEST
from polysweep.sweeps.store.files import NewerFormatError, StoreError
from polysweep.sweeps.store.record import BEGUN
from polysweep.sweeps.store.states import State
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.offline_runs import mark_continued, offline_run


def retry(store: Store, widths: Mapping[str, int | None]) -> int:
    """Make the failed ones among the trials run again; returns how many. Their earlier errors stay in their records.

    `widths` has by trial id the K that is planned: a trial without any epoch takes it, as it may have failed for its K;
    None: it is not known.
    A damaged record is put aside as record-damaged.json, and the trial starts over.
    """
    count = 0
    for trial_id, width in widths.items():
        claim = store.claim(trial_id)
        if claim is None:
            continue
        try:
            count += _retry(store, trial_id, width)
        finally:
            claim.release()
    return count


def _retry(store: Store, trial_id: str, width: int | None) -> bool:
    folder = f"trials/{trial_id}"
    try:
        record = store.record(trial_id)
    except NewerFormatError:  # not damaged, and not to be replaced
        raise
    except StoreError:
        store.files.write(f"{folder}/record-damaged.json", store.files.read(f"{folder}/record.json") or b"")
        for name in (NEWEST, BEFORE, "record.json"):
            store.files.remove(f"{folder}/{name}")
        return True
    if record is None or record["outcome"] != State.FAILED:
        return False
    if (run := offline_run(store.wandb_folder, trial_id)) is not None:
        mark_continued(run, record["epoch"])
    errors = [*record.get("errors", []), record["error"]]
    logged = BEGUN if record.get("wandb") else None
    again = {"outcome": State.RUNNING.value, "error": None, "ended": None, "failures": 0}
    if not record["epoch"] and width is not None:
        again["width"] = width
    store.write_record(trial_id, {**record, **again, "errors": errors, "wandb": logged})
    return True
