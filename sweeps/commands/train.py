"""`polysweep train`: one trial in this process, through the same Store and claims as a sweep's."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console

from polysweep.sweeps.console import warn
from polysweep.sweeps.job import Job, RowProgress
from polysweep.sweeps.planning.preflight import check_trials
from polysweep.sweeps.store.claims import STALE_SECONDS
from polysweep.sweeps.store.provenance import differences, provenance
from polysweep.sweeps.store.states import FINAL, State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import complete
from polysweep.sweeps.worker.signals import Interruption
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.cpus import usable_cpus
from polysweep.trainer.device import check_device
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import shown_number
from polysweep.trainer.text import printable
from polysweep.trainer.wandb_runs import Mode, Online, run_name

DRAIN_SECONDS = 30.0


def train_one(
    config: TrialConfig, store: Store, *, wandb: Mode, threads: int, device: str, data: str, console: Console
) -> int:
    """Train or continue the trial and return the exit code.

    Raises `UserError` if another process runs it, or if its device or data is missing.
    """
    check_device(device)

    def say(text: str) -> None:
        console.print(printable(text), highlight=False, markup=False, soft_wrap=True)

    trial_id = config.trial_id
    state = store.state(trial_id)
    name = f"{trial_id} ({run_name(config.flat())})"
    if state.state in FINAL:
        complete({trial_id: config.flat()}, store, wandb)
        say(f"{name}: nothing to start, it has {state.state}")
        return 1 if state.state == State.FAILED else 0
    if state.state == State.RUNNING:
        state = _wait_for_holder(store, trial_id, name)
    if threads > usable_cpus():
        raise UserError(f"--threads: {threads}, but there are {usable_cpus()} cores for this process")
    check_trials([config], data, device)
    job = _job(config, store, state, device=device, data=data, threads=threads)
    if state.epoch and (changed := _change_of_device(store, trial_id, job)):
        warn(f"{name} continues on another kind of device: {changed}")
    interruption = Interruption.of_process()
    online = Online() if wandb == "online" else None
    run = StackRun(job, online, interrupted=lambda: interruption.is_over)
    with interruption.in_order(run.flush):
        _train(run, config, online, interruption, say)
    record = store.record(trial_id) or {"outcome": State.RUNNING, "epoch": 0}
    is_final = record["outcome"] in FINAL
    if interruption.signal and not is_final:
        say(f"{name}: interrupted after epoch {record['epoch']}; rerun the same command to resume")
        return interruption.exit_code
    if is_final and not interruption.signal:
        complete({trial_id: config.flat()}, store, wandb)
    say(f"{name}: {record['outcome']}")
    if record["outcome"] == State.FAILED:
        say(record["error"])
    return int(not is_final or record["outcome"] == State.FAILED)


def _job(config: TrialConfig, store: Store, state: TrialState, *, device: str, data: str, threads: int) -> Job:
    return Job(
        store=store.root,
        configs=(config.canonical(),),
        width=state.width or 1,
        epoch=state.epoch,
        supersedes={config.trial_id: state.generation},
        device=device,
        data=data,
        threads=threads,
    )


def _change_of_device(store: Store, trial_id: str, job: Job) -> str:
    """In words, how the device differs from the one on which the trial was trained before; empty if it does not."""
    before = (store.record(trial_id) or {}).get("provenance", {})
    return differences(before, provenance(job.device, job.threads))


def _train(
    run: StackRun, config: TrialConfig, online: Online | None, interruption: Interruption, say: Callable[[str], None]
) -> None:
    """To the end, or until a signal has come."""
    try:
        progress = run.advance()
        while progress is not None:
            for row in progress:
                if text := _values(row):
                    say(f"epoch {row.epoch}/{config.epochs}: {text}")
            progress = None if run.is_over else run.advance()
    finally:
        run.close()
        if online:
            online.close(3.0 if interruption.signal else DRAIN_SECONDS)


def _wait_for_holder(store: Store, trial_id: str, name: str) -> TrialState:
    """The trial's state once its holder is known to be gone; for another machine that is known only by its heartbeat.

    Raises `UserError` if the holder is alive.
    """
    since = time.monotonic()
    state = store.state(trial_id)
    if state.elsewhere:
        print(f"{name} was last run by {state.holder}: waiting {STALE_SECONDS:.0f} s to see whether it still runs")
    while state.state == State.RUNNING:
        if not state.elsewhere or time.monotonic() - since > STALE_SECONDS + 1:
            raise UserError(f"{name} is run by {state.holder}")
        time.sleep(1)
        state = store.state(trial_id)
    return state


def _values(row: RowProgress) -> str:
    """What is shown of an epoch; nothing if it has no history, because the trial failed."""
    names = ("train/loss", "val/top1", "test/loss", "test/top1", "suboptimality/relative", "gamma/mean")
    return ", ".join(f"{name} {shown_number(row.history[name])}" for name in names if row.history.get(name) is not None)
