"""Runs one stack of trials against the Store: claims, checkpoints, records, W&B. Knows nothing of Ray."""

from __future__ import annotations

import gc
import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from polysweep.sweeps.job import Job, RowProgress
from polysweep.sweeps.store.claims import Lease
from polysweep.sweeps.store.record import BEGUN
from polysweep.sweeps.store.states import State
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.wandb_sweep import sweep_ids
from polysweep.sweeps.worker.failures import Failure, verdict
from polysweep.sweeps.worker.heartbeat import Watch
from polysweep.sweeps.worker.trial_run import TrialRun
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.text import last_line
from polysweep.trainer.wandb_runs import Online, describe

WRITERS: Final = 8
_too_wide: dict[str, int] = {}
"""By signature, the smallest K that has run out of memory in this process: a reused worker tries it once."""


class StackRun:
    """One stack from its claims to its records. `advance` trains one epoch; `close` is always to be called."""

    def __init__(self, job: Job, online: Online | None = None, interrupted: Callable[[], bool] = lambda: False) -> None:
        self._job = job
        self._store = Store(job.store, job.patience)
        self._store.files.gives_up = self._should_stop
        self._online = online
        self._interrupted = interrupted
        self._active: list[TrialRun] = []  # the trials of the stack that have not ended and are ours
        self._group: list[TrialRun] = []  # what is trained now: trials at one epoch, or one alone after an error
        self._waiting: list[list[TrialRun]] = []  # what is trained after that
        self._unsaved: dict[str, tuple[TrialRun, Callable[[], Mapping[str, Any]]]] = {}
        self._lock = threading.RLock()  # the watch saves what is due while an epoch is being trained
        self._saved_at = time.monotonic()
        self._epochs: Any = None
        self._watch: Watch | None = None
        self._lease: Lease | None = None

    def advance(self) -> list[RowProgress] | None:
        """Train one epoch of all rows; None if nothing is left to do here or a stop was asked for.

        An exception of the training itself is not raised. In a stack of several trials it is unknown which of them
        raised it: they continue one by one, at the same K. A single trial is retried from its checkpoint `max_failures`
        times, then it is `failed`, with the traceback in its record. An exception of the Store is raised: what it holds
        is still whole, and the trials can be continued.
        """
        if (self._epochs is None and not self._start()) or not self._active:
            return None
        epoch = self._next_epoch()  # an exception is gone by now, and with it its references to the stack's tensors
        if isinstance(epoch, Failure):
            if not epoch.is_too_wide:
                return self._after_error(epoch.traceback)
            self._halve_width()
            return None
        if epoch is None:
            self._save()
            return None
        return self._take_over(epoch)

    def _next_epoch(self) -> Sequence[Any] | Failure | None:
        """The reports of an epoch, one for each row; None at the end.

        Raises an error of memory that another attempt may not meet: a trial keeps its K from its first epoch on.
        """
        try:
            reports: Sequence[Any] | None = next(self._epochs, None)
        except (Exception, SystemExit) as error:  # SystemExit by a user's own part must not end the worker
            has_epochs = any(row.history for row in self._active)
            meaning = verdict(error, self._job.width, has_epochs=has_epochs)
            if meaning == "retry":
                self._note(f"out of memory at K = {self._job.width}, which a trial keeps from its first epoch on")
                raise
            return Failure(meaning == "too wide", traceback.format_exc())
        return reports

    def _take_over(self, reports: Sequence[Any]) -> list[RowProgress]:
        """An epoch of the group: into W&B, into the Store if that is due; then what comes next."""
        with self._lock:
            for report in reports:
                row = self._group[report.row]
                row.add(report.history, report.checkpoint, report.outcome)
                self._unsaved[row.trial_id] = (row, report.checkpoint)
        active = [(self._group[report.row], report) for report in reports if self._group[report.row] in self._active]
        if self._online:
            for row, report in active:
                self._online.log(row.trial_id, report.history)
        ended = [row for row, report in active if report.outcome != State.RUNNING]
        if ended or self._is_due() or self._should_stop():
            self._save()
        for row in ended:
            self._release(row)
        if self._waiting and not any(row in self._active for row in self._group):
            self._train_next()
        return [RowProgress(row.trial_id, report.epoch, report.outcome, report.history) for row, report in active]

    def flush(self) -> None:
        """Store now what is not stored yet, beside the epoch that is being trained; safe in a signal's handler."""
        if self._watch is not None:
            self._watch.flush()

    @property
    def is_over(self) -> bool:
        """Whether every trial of the stack has ended, or is no longer this process's."""
        return self._epochs is not None and not self._active

    def close(self) -> None:
        """Store what is not stored yet, and give up the claims."""
        if self._watch is not None:
            self._watch.close()
        try:
            self._save()
        finally:
            if self._epochs is not None:
                self._epochs.close()
            for row in list(self._active):
                if row.is_to_stop():
                    row.mark_ended(State.STOPPED)
                    if row.write_record():
                        self._release(row)
                        continue
                if self._online:
                    self._online.finish(row.trial_id, State.RUNNING.value)
            self._release_rest()

    def _release_rest(self) -> None:
        """Give up every trial that has not ended: their claims are void without the lease."""
        for row in self._active:
            self._store.files.drop_fence(row.claim.fence)
        self._active = []
        if self._lease is not None:
            self._lease.release()

    def _is_due(self) -> bool:
        return time.monotonic() - self._saved_at >= self._job.checkpoint_seconds

    def _save_if_due(self) -> None:
        """Called by the watch: the last epoch is stored even if the next one never ends."""
        if self._unsaved and (self._is_due() or self._should_stop()):
            self._save()

    def _should_stop(self) -> bool:
        return self._interrupted() or (self._watch is not None and self._watch.stop.is_set())

    def _start(self) -> bool:
        """Claim what can be claimed, load it, start the loop. False if nothing is left for this process."""
        if self._job.stop_file and self._store.files.exists(self._job.stop_file):
            return False
        self._lease = self._store.claims.lease(self._job.launch)
        for values in self._job.configs:
            row = TrialRun.take(TrialConfig.parse(values), self._store, self._job, self._lease)
            if row is not None:
                self._active.append(row)
        if not self._active:
            return False
        self._waiting = self._by_epoch()
        self._group = self._waiting.pop(0)
        if not self._job.epoch and self._job.width >= _too_wide.get(self._group[0].config.signature, math.inf):
            self._halve_width()
            return False
        self._watch = Watch(self._store, self._lease, self._job.stop_file, self._save_if_due)
        self._load_data()
        self._epochs = self._train()
        if self._online:
            tags = self._store.sweeps_of({row.trial_id for row in self._active})
            names = {trial_id: {*some, *self._job.sweeps} for trial_id, some in tags.items()}
            ids = sweep_ids(self._store, names)
            for row in self._active:
                row.note_wandb(BEGUN)
                canonical, flat = row.config.canonical(), row.config.flat()
                run = describe(row.trial_id, canonical, flat, sorted(names[row.trial_id]), row.record)
                self._online.start(replace(run, sweep_id=ids[row.trial_id]), row.history)
        return True

    def _by_epoch(self) -> list[list[TrialRun]]:
        """The rows that stand at one epoch, the least first; after a kill in the middle of a save there can be two."""
        epochs = sorted({row.record["epoch"] for row in self._active})
        return [[row for row in self._active if row.record["epoch"] == epoch] for epoch in epochs]

    def _load_data(self) -> None:
        """Here, and not in the loop: data that is missing is not a failure of the trials."""
        from polysweep.trainer.tasks.loading import load_task

        load_task(self._group[0].config, self._job.data, self._job.device)

    def _train(self) -> Any:
        import torch

        from polysweep.trainer.train import train

        torch.set_num_threads(self._job.threads)
        return train(
            [row.config for row in self._group],
            width=self._job.width,
            checkpoints=[row.checkpoint for row in self._group],
            stop=self._should_stop,
            device=self._job.device,
            data=self._job.data,
        )

    def _train_next(self) -> None:
        """The next trials, from their checkpoints."""
        while self._waiting:
            group = [row for row in self._waiting.pop(0) if row in self._active]
            if group:
                for row in group:
                    row.restore()
                self._group = group
                self._epochs.close()
                self._epochs = self._train()
                return

    def _after_error(self, error: str) -> list[RowProgress]:
        """Continue without the trial whose error it is, or find out whose it is. Returns the failed one."""
        self._save()
        left = [row for row in self._group if row in self._active]
        if len(left) > 1:
            for row in left:
                row.note(f"an error in its stack after epoch {len(row.history)}: trained alone from there")
            self._waiting = [[row] for row in left] + self._waiting
            self._train_next()
            return []
        failed = []
        for row in left:
            row.record["failures"] = row.record.get("failures", 0) + 1
            if row.record["failures"] <= self._job.max_failures:
                row.note(f"failed after epoch {len(row.history)}, tried again: {last_line(error)}")
                self._waiting.insert(0, [row])
            else:
                row.mark_ended(State.FAILED, error)
            if not row.write_record():
                self._abandon(row)
            elif row.record["outcome"] == State.FAILED:
                self._release(row)
                failed.append(RowProgress(row.trial_id, len(row.history), State.FAILED, {}))
        self._train_next()
        return failed

    def _save(self) -> None:
        """History, checkpoint, record of every row that has epochs which the Store lacks."""
        with self._lock:
            self._saved_at = time.monotonic()
            unsaved = [(row, checkpoint()) for row, checkpoint in self._unsaved.values()]
            with ThreadPoolExecutor(WRITERS) as writers:  # a disk or a server takes many small writes at once
                saved = writers.map(lambda pair: pair[0].save(pair[1]), unsaved)
                for (row, _), is_ours in zip(unsaved, saved, strict=True):
                    if not is_ours:
                        self._abandon(row)
                    del self._unsaved[row.trial_id]

    def _release(self, row: TrialRun) -> None:
        """After the final record."""
        if row not in self._active:
            return
        self._active.remove(row)
        if self._online:
            self._online.finish(row.trial_id, row.record["outcome"])
        row.release()

    def _abandon(self, row: TrialRun) -> None:
        """Another process has taken over: nothing more is written of this trial."""
        if row in self._active:
            self._active.remove(row)

    def _halve_width(self) -> None:
        """The device lacks the memory for K rows: trials that have not started use half of K from now on."""
        width = self._job.width
        _too_wide[self._active[0].config.signature] = width
        for row in self._active:
            row.record["width"] = width // 2
            row.record["notes"].append(f"out of memory at K = {width}: starts at K = {width // 2}")
            row.write_record()
        self._release_rest()
        if self._epochs is not None:
            self._epochs.close()
        gc.collect()
        if self._job.device != "cpu":
            import torch

            torch.cuda.empty_cache()

    def _note(self, text: str) -> None:
        """Add a note to the records of the rows that have not ended, once."""
        for row in self._active:
            row.note(text)
            row.write_record()
