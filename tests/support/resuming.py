"""A trial that is trained in pieces, and what it has come to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from polysweep.sweeps.job import Job
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.checkpoint import loads
from polysweep.trainer.config import TrialConfig
from tests.support.training import untimed

VALUES = {
    "task": "tests.support.mini_cifar:cifar10", "model": "resnet8", "optimizer": "sam", "scheduler": "polyak",
    "rho": 0.1, "momentum": 0.5, "batch_size": 32, "epochs": 70, "val_fraction": 0.2,
    "augmentation": "crop+flip+cutout", "weight_decay": 5e-4,
}  # fmt: skip
CONFIG = TrialConfig.parse(VALUES)


def job(store: Path, data: Path, config: TrialConfig = CONFIG) -> Job:
    state = Store(str(store)).state(config.trial_id)
    return Job(
        str(store), (config.canonical(),), 1, state.epoch, supersedes={config.trial_id: state.generation},
        data=str(data), checkpoint_seconds=0.0,
    )  # fmt: skip


def run_to_the_end(store: Path, data: Path, reported: Path, die_in_write: int | None = None) -> None:
    """Train the trial, noting every epoch that is stored; SIGKILL in the middle of the n-th write, if given."""
    if die_in_write is not None:
        sync, count = os.fsync, iter(range(10**9))

        def fsync(file: int) -> None:
            if next(count) == die_in_write:
                os.kill(os.getpid(), signal.SIGKILL)
            sync(file)

        os.fsync = fsync
    while True:  # a job whose plan was behind only puts the record right
        run = StackRun(job(store, data))
        progress = run.advance()
        while progress:
            aside = reported.with_suffix(".new")
            aside.write_text(str(progress[0].epoch))
            aside.replace(reported)  # a kill leaves the old number or the new one
            progress = None if run.is_over else run.advance()
        run.close()
        if Store(str(store)).state(CONFIG.trial_id).state == "finished":
            return


def outcome(store: Path, config: TrialConfig = CONFIG) -> tuple[list[dict], dict]:
    """History without timings, and the last checkpoint's tensors."""
    found = Store(str(store))
    content = found.files.read(f"trials/{config.trial_id}/checkpoint.pt")
    assert content is not None
    return [untimed(row) for row in found.history(config.trial_id)], loads(content)["row"]
