"""`polysweep train`: one trial in this process, through the same Store and claims as a sweep's."""

from __future__ import annotations

import signal

from rich.console import Console

from sweeps.plan import FINAL
from sweeps.reconcile import complete
from sweeps.store import Store
from sweeps.worker import Job, StackRun, mark_synced
from trainer.config import TrialConfig
from trainer.registry import UserError
from trainer.tracking import Mode, Online, run_name

DRAIN_SECONDS = 30.0


def train_one(config: TrialConfig, store: Store, *, wandb: Mode, threads: int, device: str, console: Console) -> int:
    """Train or continue the trial and return the exit code.

    Raises `UserError` where another process runs it, or where there is no such device.
    """
    _check_device(device)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    trial_id = config.trial_id
    state = store.state(trial_id)
    name = f"{trial_id} ({run_name(config)})"
    if state.state in FINAL:
        complete({trial_id: config}, store, wandb, idle=False)
        say(f"{name}: nothing to start, it has {state.state}")
        return 1 if state.state == "failed" else 0
    if state.state == "running":
        raise UserError(f"{name} is run by {state.holder}")
    job = Job(
        store=store.root,
        configs=(config.canonical(),),
        width=state.width or 1,
        epoch=state.epoch,
        over={trial_id: store.generation(trial_id)},
        device=device,
        threads=threads,
    )
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: signals.append(number))
    online = Online(lambda done: mark_synced(store, done)) if wandb == "online" else None
    run = StackRun(job, online, interrupted=lambda: bool(signals))
    try:
        while (progress := run.advance()) is not None:
            for row in progress:
                values = ", ".join(
                    f"{key} {row.history[key]:.4f}"
                    for key in ("train/loss", "test/loss", "test/top1", "gamma/mean")
                    if row.history.get(key) is not None
                )
                say(f"epoch {row.epoch}/{config.epochs}: {values}")
            if run.is_over:
                break
    finally:
        run.close()
        if online:
            online.drain(5.0 if signals else DRAIN_SECONDS)
    record = store.record(trial_id) or {"outcome": "running", "epoch": 0}
    if record["outcome"] in FINAL:
        complete({trial_id: config}, store, wandb, idle=False)
    if signals and record["outcome"] not in FINAL:
        say(f"{name}: interrupted after epoch {record['epoch']}; the same command continues it")
        return 128 + signals[0]
    say(f"{name}: {record['outcome']}")
    if record["outcome"] == "failed":
        say(record["error"])
    return 0 if record["outcome"] in ("finished", "diverged", "stopped") else 1


def _check_device(device: str) -> None:
    """Before anything is claimed: a trial must not fail for want of a device."""
    if device == "cpu":
        return
    import torch

    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    known = ["cpu", *(["cuda"] if found else []), *found]
    if device not in known:
        raise UserError(f"--device: {device!r} is not on this machine; expected one of {', '.join(known)}")
