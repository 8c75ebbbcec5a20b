"""Runs one stack of trials against the Store: claims, checkpoints, records, W&B. Knows nothing of Ray."""

from __future__ import annotations

import gc
import logging
import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sweeps.checkpoints import put_right, read_checkpoint, remove_checkpoints, write_checkpoint
from sweeps.plan import FINAL
from sweeps.process import Process
from sweeps.provenance import differences
from sweeps.record import Job, first_record
from sweeps.store import Claim, Store
from sweeps.watch import Watch
from trainer.config import TrialConfig
from trainer.tracking import Online, describe

log = logging.getLogger("polysweep.worker")
_NO_MEMORY: Final[list[Any]] = []
_too_wide: dict[str, int] = {}
"""By signature, the smallest K that has run out of memory in this process: a reused worker tries it once."""


@dataclass(frozen=True)
class RowProgress:
    """Where one trial stands after an epoch."""

    trial_id: str
    epoch: int
    outcome: str
    history: Mapping[str, Any]


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
        except (Exception, SystemExit) as error:  # the latter of a user's own part: it must not look like an end
            started = any(row.history for row in self._going)
            if not _is_out_of_memory(error) or (self._job.width == 1 and not started):
                return self._fail(traceback.format_exc())
            if started:
                self._note(f"out of memory at K = {self._job.width}, which a trial keeps from its first epoch on")
                raise  # for another attempt, when the device has more
            reports = _NO_MEMORY
        if reports is _NO_MEMORY:  # outside the handler, which would hold the stack's tensors
            self._narrow()
            return None
        if reports is None:
            self._save()
            return None
        self._add(reports)
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

    def _add(self, reports: Sequence[Any]) -> None:
        """Take over an epoch of the rows, to be saved when it is due."""
        with self._lock:
            for report in reports:
                row = self._rows[report.row]
                row.history.append(report.history)
                self._unsaved[row.trial_id] = (row, report.checkpoint)
                if self._job.keep == "best":
                    self._keep_if_best(row, report.history, report.checkpoint)
                if report.outcome != "running":
                    self._mark_ended(row, report.outcome)

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
        if not self._job.epoch and self._job.width >= _too_wide.get(self._rows[0].config.signature, math.inf):
            self._narrow()
            return False
        self._watch = Watch(self._store, claims, self._job.stop_file, self._save_if_due)
        self._load_data()
        self._epochs = self._train()
        tags = self._store.sweeps_of({row.trial_id for row in self._rows})
        for row in self._rows:
            if self._online:
                names = {*tags[row.trial_id], *self._job.sweeps}
                self._online.start(describe(row.config, sorted(names)), row.history)
        return True

    def _load_data(self) -> None:
        """Here, and not in the loop: data that is missing is not a failure of the trials."""
        from trainer.tasks import load_task

        load_task(self._rows[0].config, self._job.data, self._job.device)

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
            data=self._job.data,
        )

    def _take(self, config: TrialConfig) -> Row | None:
        """Claim a trial and read where it stands; None where it is another's, or nothing for this stack."""
        trial_id = config.trial_id
        claim = self._store.claim(trial_id, over=self._job.over.get(trial_id, 0))
        if claim is None:
            return None
        try:
            row = self._prepare(config, claim)
        except BaseException:
            claim.release()  # nobody would beat for it
            raise
        if row is None:
            claim.release()
        return row

    def _prepare(self, config: TrialConfig, claim: Claim) -> Row | None:
        """Read where a claimed trial stands; None where it is final, or not at the stack's epoch."""
        trial_id = config.trial_id
        old = self._store.record(trial_id)
        if old is not None and old["outcome"] in FINAL:
            return None
        self._store.write_config(trial_id, config.canonical())
        row = Row(config, claim, first_record(old, config, claim, self._job))
        self._restore(row)
        row.record["epoch"] = len(row.history)
        if row.checkpoint is not None and row.checkpoint["outcome"] != "running":
            # It was killed between its last checkpoint and its final record.
            self._store.write_history(trial_id, row.history)
            self._mark_ended(row, row.checkpoint["outcome"])
        if row.record["outcome"] in FINAL or (row.record["epoch"], row.record["width"]) != (
            self._job.epoch,
            self._job.width,
        ):
            # It moved on since the plan was made. The record says where it stands; the next plan places it.
            self._store.write_record(trial_id, row.record)
            return None
        changed = differences(old.get("provenance", {}), row.record["provenance"]) if old and row.history else ""
        if changed:
            note = f"continued after epoch {len(row.history)} on another kind of device: {changed}"
            log.warning("%s: %s", trial_id, note)
            row.record["notes"].append(note)
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
        """Load checkpoint and history. What cannot be used is noted in the trial's record."""
        row.checkpoint, notes = read_checkpoint(self._store, row.record)
        if row.checkpoint is not None:
            row.history = list(row.checkpoint["history"])
            self._restore_best(row, row.checkpoint)
        if notes:
            row.record |= {"notes": [*row.record["notes"], *notes], "epoch": len(row.history)}
            self._store.write_record(row.trial_id, row.record)
            self._store.write_history(row.trial_id, row.history)
            put_right(self._store, row.trial_id, row.checkpoint)

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

    def _save_row(self, row: Row, checkpoint: Mapping[str, Any]) -> None:
        self._store.write_history(row.trial_id, row.history)
        best = {} if row.best is None else {"best": dict(row.best)}
        write_checkpoint(self._store, row.trial_id, {**checkpoint, **best})
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
            write_checkpoint(self._store, row.trial_id, row.best)
        remove_checkpoints(self._store, row.trial_id, keep_newest=self._job.keep != "none")
        if self._online:
            self._online.finish(row.trial_id, row.record["outcome"])
        row.claim.release()

    def _lose(self, row: Row) -> None:
        """Another process has taken over: nothing more is written of this trial."""
        if row in self._going:
            self._going.remove(row)

    def _narrow(self) -> None:
        """The device has not the memory for K rows: trials that have not started take half of K from now on."""
        width = self._job.width
        _too_wide[self._rows[0].config.signature] = width
        for row in self._going:
            row.record["width"] = width // 2
            row.record["notes"].append(f"out of memory at K = {width}: starts at K = {width // 2}")
            if row.claim.is_held():
                self._store.write_record(row.trial_id, row.record)
            row.claim.release()
        self._going = []
        if self._epochs is not None:
            self._epochs.close()
        gc.collect()
        if self._job.device != "cpu":
            import torch

            torch.cuda.empty_cache()

    def _note(self, text: str) -> None:
        """Add a note to the records of the rows that are still going, once."""
        for row in self._going:
            if text not in row.record["notes"] and row.claim.is_held():
                row.record["notes"].append(text)
                self._store.write_record(row.trial_id, row.record)

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


def _is_out_of_memory(error: BaseException) -> bool:
    """torch has a class for it, cuBLAS, CUDA graphs and the CPU's allocator have words."""
    words = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
    return type(error).__name__ == "OutOfMemoryError" or any(word in str(error) for word in words)
