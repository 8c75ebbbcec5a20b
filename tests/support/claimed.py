"""A trial under a claim: what its worker writes, and what is in the Store of it."""

from __future__ import annotations

from polysweep.sweeps.job import Job
from polysweep.sweeps.store.checkpoints import write_checkpoint
from polysweep.sweeps.store.claims import Claim
from polysweep.sweeps.store.store import Store
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


def job(root: str, count: int) -> Job:
    values = {"task": "digits", "model": "mlp", "optimizer": "usam", "scheduler": "polyak", "rho": 0.1, "epochs": 2}
    configs = tuple(TrialConfig.parse({**values, "seed": seed}).canonical() for seed in range(count))
    return Job(root, configs, count, checkpoint_seconds=0)
