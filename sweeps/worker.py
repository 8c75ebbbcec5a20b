"""Runs one stack of trials against the Store: claims, checkpoints, records, W&B. Knows nothing of Ray."""

from __future__ import annotations

import io
import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sweeps.plan import FINAL
from sweeps.process import Process
from sweeps.provenance import provenance
from sweeps.store import HEARTBEAT_SECONDS, Claim, Store
from trainer.config import TrialConfig
from trainer.tracking import Online, describe

POLL_SECONDS: Final = 0.3
log = logging.getLogger("polysweep.worker")


@dataclass(frozen=True)
class Job:
    """A stack to run. Plain data: it travels to a worker."""

    store: str
    configs: tuple[Mapping[str, Any], ...]  # canonical
    width: int  # K
    epoch: int  # that the trials are thought to stand at
    sweeps: tuple[str, ...] = ()  # W&B tags of every trial, besides those of other sweeps in the Store
    over: Mapping[str, int] = field(default_factory=dict)  # claims seen to be stale, by trial id
    device: str = "cpu"
    threads: int = 1
    checkpoint_seconds: float = 1.0
    keep: str = "last"  # or best (by the metric below), or none
    metric: str = "test/top1"
    goal: str = "maximize"
    stop_file: str = ""  # in the Store; its existence asks to stop


@dataclass(frozen=True)
class RowProgress:
    """Where one trial stands after an epoch."""

    trial_id: str
    epoch: int
    outcome: str
    history: Mapping[str, Any]


class Watch:
    """A thread that keeps claims alive, looks for the request to stop, and calls `tick` a few times a second."""

    def __init__(self, store: Store, claims: Sequence[Claim], stop_file: str, tick: Callable[[], None]) -> None:
        self.stop = threading.Event()
        self._store = store
        self._claims = list(claims)
        self._stop_file = stop_file
        self._tick = tick
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="claims", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        last_beat = time.monotonic()
        while not self._over.wait(POLL_SECONDS):
            try:
                if time.monotonic() - last_beat >= HEARTBEAT_SECONDS:
                    last_beat = time.monotonic()
                    for claim in self._claims:
                        claim.beat()
                if self._stop_file and self._store.exists(self._stop_file):
                    self.stop.set()
                self._tick()
            except Exception:
                log.warning("the Store is out of reach; the next round may get through", exc_info=True)


class Row:
    """One trial of the stack: its claim, its history, what of it is in the Store."""

    def __init__(self, config: TrialConfig, claim: Claim, record: dict[str, Any]) -> None:
        self.config = config
        self.claim = claim
        self.record = record
        self.history: list[dict[str, Any]] = []
        self.checkpoint: Mapping[str, Any] | None = None
        self.best: Mapping[str, Any] | None = None  # the best epoch's checkpoint, where that one is to be kept
        self.best_value: float | None = None

    @property
    def trial_id(self) -> str:
        """The trial's id."""
        return self.claim.trial_id


class StackRun:
    """One stack from its claims to its records. `advance` trains one epoch; `close` is always to be called."""

    def __init__(self, job: Job, online: Online | None = None, interrupted: Callable[[], bool] = lambda: False) -> None:
        self._job = job
        self._store = Store(job.store)
        self._online = online
        self._interrupted = interrupted
        self._rows: list[Row] = []
        self._going: list[Row] = []
        self._unsaved: dict[str, tuple[Row, Callable[[], Mapping[str, Any]]]] = {}
        self._lock = threading.RLock()  # the watch saves what is due while an epoch is being trained
        self._saved_at = time.monotonic()
        self._epochs: Any = None
        self._watch: Watch | None = None

    def advance(self) -> list[RowProgress] | None:
        """Train one epoch of all rows; None when nothing is left to do here or a stop was asked for.

        An exception of the training itself makes its trials `failed`, with the traceback in their records; it is not
        raised. One of the Store is raised: what it holds is still whole, and the trials can be continued.
        """
        if (self._epochs is None and not self._start()) or not self._going:
            return None
        try:
            reports = next(self._epochs, None)
        except Exception:
            return self._fail(traceback.format_exc())
        if reports is None:
            self._save()
            return None
        with self._lock:
            for report in reports:
                row = self._rows[report.row]
                row.history.append(report.history)
                self._unsaved[row.trial_id] = (row, report.checkpoint)
                if self._job.keep == "best":
                    self._keep_if_best(row, report.history, report.checkpoint)
                if report.outcome != "running":
                    self._mark_ended(row, report.outcome)
        going = [report for report in reports if self._rows[report.row] in self._going]
        if self._online:
            for report in going:
                self._online.log(self._rows[report.row].trial_id, report.history)
        if any(report.outcome != "running" for report in going) or self._is_due() or self._should_stop():
            self._save()
        for report in going:
            if report.outcome != "running":
                self._let_go(self._rows[report.row])
        return [RowProgress(self._rows[r.row].trial_id, r.epoch, r.outcome, r.history) for r in going]

    @property
    def is_over(self) -> bool:
        """Whether every trial of the stack has ended, or is no longer this process's."""
        return self._epochs is not None and not self._going

    def close(self) -> None:
        """Store what is not stored yet, let go of the claims."""
        if self._watch is not None:
            self._watch.close()
        try:
            self._save()
        finally:
            if self._epochs is not None:
                self._epochs.close()
            for row in self._going:
                if self._online:
                    self._online.finish(row.trial_id, "running")
                row.claim.release()
            self._going = []

    def _keep_if_best(self, row: Row, history: Mapping[str, Any], checkpoint: Callable[[], Any]) -> None:
        """Keep a copy of the first of the best epochs."""
        value = history[self._job.metric]
        if value is None:
            return
        signed = value if self._job.goal == "maximize" else -value
        if row.best_value is None or signed > row.best_value:
            row.best, row.best_value = checkpoint(), signed

    def _is_due(self) -> bool:
        return time.monotonic() - self._saved_at >= self._job.checkpoint_seconds

    def _save_if_due(self) -> None:
        """Called by the watch: also the epoch before one that lasts for ever is safe."""
        if self._unsaved and (self._is_due() or self._should_stop()):
            self._save()

    def _should_stop(self) -> bool:
        return self._interrupted() or (self._watch is not None and self._watch.stop.is_set())

    def _start(self) -> bool:
        """Claim what can be claimed, load it, start the loop. False where nothing is left for this process."""
        if self._job.stop_file and self._store.exists(self._job.stop_file):
            return False
        for values in self._job.configs:
            row = self._take(TrialConfig.parse(values))
            if row is not None:
                self._rows.append(row)
                self._going.append(row)
        if not self._rows:
            return False
        claims = [row.claim for row in self._rows]
        self._watch = Watch(self._store, claims, self._job.stop_file, self._save_if_due)
        self._epochs = self._train()
        tags = self._store.sweeps_of({row.trial_id for row in self._rows})
        for row in self._rows:
            if self._online:
                names = {*tags[row.trial_id], *self._job.sweeps}
                self._online.start(describe(row.config, sorted(names)), row.history)
        return True

    def _train(self) -> Any:
        import torch

        from trainer.train import train

        torch.set_num_threads(self._job.threads)
        return train(
            [row.config for row in self._rows],
            width=self._job.width,
            checkpoints=[row.checkpoint for row in self._rows],
            stop=self._should_stop,
            device=self._job.device,
        )

    def _take(self, config: TrialConfig) -> Row | None:
        """Claim a trial and read where it stands; None where it is another's, final, or not at the stack's epoch."""
        trial_id = config.trial_id
        claim = self._store.claim(trial_id, over=self._job.over.get(trial_id, 0))
        if claim is None:
            return None
        old = self._store.record(trial_id)
        if old is not None and old["outcome"] in FINAL:
            claim.release()
            return None
        self._store.write_config(trial_id, config.canonical())
        row = Row(config, claim, _first_record(old, config, claim, self._job))
        self._restore(row)
        row.record["epoch"] = len(row.history)
        if row.checkpoint is not None and row.checkpoint["outcome"] != "running":
            # It was killed between its last checkpoint and its final record.
            self._mark_ended(row, row.checkpoint["outcome"])
        if row.record["outcome"] in FINAL or (row.record["epoch"], row.record["width"]) != (
            self._job.epoch,
            self._job.width,
        ):
            # It moved on since the plan was made. The record says where it stands; the next plan places it.
            self._store.write_record(trial_id, row.record)
            claim.release()
            return None
        row.record["sessions"].append(
            {
                "from_epoch": row.record["epoch"],
                "started": time.time(),
                "process": str(Process.this()),
                "provenance": row.record["provenance"],
            }
        )
        self._store.write_record(trial_id, row.record)
        return row

    def _restore(self, row: Row) -> None:
        """Load checkpoint and history. Where they cannot be used the trial starts over, and its record says so."""
        path = f"trials/{row.trial_id}/checkpoint.pt"
        content = self._store.read(path)
        if content is None:
            if row.record["epoch"]:
                row.record["notes"] = [*row.record["notes"], "started over: there was no checkpoint"]
            return
        try:
            import torch

            checkpoint = torch.load(io.BytesIO(content), weights_only=True)
            history = self._store.history(row.trial_id)[: checkpoint["epoch"]]
            expected = (row.trial_id, row.record["width"], len(history))
            found = (checkpoint["trial_id"], checkpoint["width"], checkpoint["epoch"])
            if found != expected:
                raise ValueError(f"trial, width, epochs are {found}, expected {expected}")
        except Exception as error:  # whatever torch or arrow say of a damaged file
            note = f"started over: {path} or history.parquet is damaged: {error!r}"
            log.warning("%s", note)
            row.record["notes"] = [*row.record["notes"], note]
            return
        row.checkpoint, row.history = checkpoint, history
        self._restore_best(row, checkpoint)

    def _restore_best(self, row: Row, checkpoint: Mapping[str, Any]) -> None:
        if self._job.keep == "best":
            for history in row.history:
                self._keep_if_best(row, history, lambda: checkpoint.get("best"))

    def _save(self) -> None:
        """History, checkpoint, record of every row that has epochs which the Store lacks."""
        with self._lock:
            self._saved_at = time.monotonic()
            for row, checkpoint in list(self._unsaved.values()):
                if row.claim.is_held():
                    self._save_row(row, checkpoint())
                else:
                    self._lose(row)
                del self._unsaved[row.trial_id]

    def _write_checkpoint(self, row: Row, checkpoint: Mapping[str, Any]) -> None:
        import torch

        buffer = io.BytesIO()
        torch.save(dict(checkpoint), buffer)
        self._store.write(f"trials/{row.trial_id}/checkpoint.pt", buffer.getvalue())

    def _save_row(self, row: Row, checkpoint: Mapping[str, Any]) -> None:
        self._store.write_history(row.trial_id, row.history)
        best = {} if row.best is None else {"best": dict(row.best)}
        self._write_checkpoint(row, {**checkpoint, **best})
        row.record["epoch"] = len(row.history)
        row.record["seconds"] = sum(h["seconds"] for h in row.history)
        if row.claim.is_held():  # as late as can be: a worker that was suspended must not overwrite its successor's
            self._store.write_record(row.trial_id, row.record)
        else:
            self._lose(row)

    def _mark_ended(self, row: Row, outcome: str, error: str | None = None) -> None:
        """Put the outcome into the record, which the next save writes: an end is never half stored."""
        row.record |= {"outcome": outcome, "error": error, "ended": time.time()}
        if outcome == "diverged":
            row.record["diverged"] = {"epoch": row.history[-1]["epoch"], "step": row.history[-1]["step"]}

    def _let_go(self, row: Row) -> None:
        """After the final record: the checkpoint that stays, W&B, the claim."""
        if row not in self._going:
            return
        self._going.remove(row)
        if self._job.keep == "best" and row.best is not None:
            self._write_checkpoint(row, row.best)
        if self._job.keep == "none":
            self._store.remove(f"trials/{row.trial_id}/checkpoint.pt")
        if self._online:
            self._online.finish(row.trial_id, row.record["outcome"])
        row.claim.release()

    def _lose(self, row: Row) -> None:
        """Another process has taken over: nothing more is written of this trial."""
        if row in self._going:
            self._going.remove(row)

    def _fail(self, error: str) -> list[RowProgress]:
        """The exception is of the stack: all rows that were still going have failed."""
        self._save()
        failed = list(self._going)
        for row in failed:
            self._mark_ended(row, "failed", error)
            if row.claim.is_held():
                self._store.write_record(row.trial_id, row.record)
                self._let_go(row)
            else:
                self._lose(row)
        return [RowProgress(row.trial_id, len(row.history), "failed", {}) for row in failed]


def mark_synced(store: Store, trial_id: str) -> None:
    """Note in a final record that the W&B server has the whole run."""
    record = store.record(trial_id)
    if record is not None and record["outcome"] in FINAL:
        store.write_record(trial_id, {**record, "wandb": "online"})


def _first_record(old: Mapping[str, Any] | None, config: TrialConfig, claim: Claim, job: Job) -> dict[str, Any]:
    """The record of a trial that starts or is continued here."""
    fresh = {
        "trial_id": config.trial_id,
        "outcome": "running",
        "width": job.width,
        "epoch": 0,
        "epochs": config.epochs,
        "started": time.time(),
        "ended": None,
        "seconds": 0.0,
        "error": None,
        "diverged": None,
        "wandb": None,
        "sessions": [],
        "notes": [],
    }
    return {
        **fresh,
        **(old or {}),
        "claim": claim.generation,
        "provenance": provenance(job.device, job.threads),
    }
