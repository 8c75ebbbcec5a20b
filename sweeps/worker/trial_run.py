"""One trial of a stack: its claim, its history, and what of it is in the Store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polysweep.sweeps.job import Job
from polysweep.sweeps.store.checkpoints import put_right, read_checkpoint, remove_checkpoints, write_checkpoint
from polysweep.sweeps.store.claims import Claim, Lease
from polysweep.sweeps.store.files import NotOursError
from polysweep.sweeps.store.process import Process
from polysweep.sweeps.store.provenance import differences, source_changes
from polysweep.sweeps.store.record import first_record
from polysweep.sweeps.store.states import FINAL, State
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.history import is_metric, is_stalled, last_epochs

log = logging.getLogger("polysweep.worker")


class TrialRun:
    """One trial of the stack. Nothing is written of it once its claim is lost."""

    def __init__(self, config: TrialConfig, claim: Claim, record: dict[str, Any], store: Store, job: Job) -> None:
        self.config = config
        self.claim = claim
        self.record = record
        self.history: list[dict[str, Any]] = []
        self.checkpoint: Mapping[str, Any] | None = None
        self._store = store
        self._job = job
        self._best: Mapping[str, Any] | None = None  # the best epoch's checkpoint, if that one is to be kept
        self._best_value: float | None = None

    @classmethod
    def take(cls, config: TrialConfig, store: Store, job: Job, lease: Lease) -> TrialRun | None:
        """Claim a trial and read where it stands; None if another process has it, or it is not for this stack."""
        claim = store.claim(config.trial_id, lease, supersedes=job.supersedes.get(config.trial_id, 0))
        if claim is None:
            return None
        try:
            run = cls._claimed(config, claim, store, job)
        except BaseException:
            claim.release()
            raise
        if run is None:
            claim.release()
        return run

    @classmethod
    def _claimed(cls, config: TrialConfig, claim: Claim, store: Store, job: Job) -> TrialRun | None:
        """A claimed trial where it stands, its session begun; None if it has ended, or has another K."""
        earlier = _record_for(job, store, config.trial_id)
        if earlier is not None and earlier["outcome"] in FINAL:
            return None
        store.write_config(config.trial_id, config.canonical())
        run = cls(config, claim, first_record(earlier, config, claim, job), store, job)
        run.restore()
        run.sum_up()
        if outcome := run._unrecorded_outcome(was_started=earlier is not None):
            run.mark_ended(outcome)
            run._write_end()
            return None
        if run.record["width"] != job.width:
            # It has trained since the plan was made. The record says where it stands; the next plan places it.
            store.write_record(config.trial_id, run.record, claim.fence)
            return None
        run._begin_session({} if earlier is None else earlier.get("provenance", {}))
        run._shut_out_predecessor()
        return run

    def _unrecorded_outcome(self, *, was_started: bool) -> str:
        """How the trial has ended though its record does not say so; empty if it has not ended."""
        if self.checkpoint is not None and self.checkpoint["outcome"] != State.RUNNING:
            return str(self.checkpoint["outcome"])  # killed between its last checkpoint and its final record
        return State.STOPPED if was_started and self.is_to_stop() else ""

    def _write_end(self) -> None:
        self._store.write_history(self.trial_id, self.history, self.claim.fence)
        self._store.write_record(self.trial_id, self.record, self.claim.fence)
        self.tidy()

    def _begin_session(self, earlier: Mapping[str, Any]) -> None:
        """Record that the trial starts or continues here; `earlier` is the provenance of what it continues."""
        changed = differences(earlier, self.record["provenance"]) if self.history else ""
        if changed:
            self.note(f"continued after epoch {len(self.history)} on another kind of device: {changed}")
        for kind, before, now in source_changes(earlier, self.record["provenance"]) if self.history else ():
            self.note(
                f"continued after epoch {len(self.history)} with another source of its {kind}: {before}, now {now}"
            )
        self.record["sessions"].append(
            {
                "from_epoch": self.record["epoch"],
                "started": time.time(),
                "process": str(Process.this()),
                "provenance": self.record["provenance"],
            }
        )
        self._store.write_record(self.trial_id, self.record, self.claim.fence)

    def _shut_out_predecessor(self) -> None:
        """An object store refuses a predecessor's write of a file only once ours has replaced the one it knows."""
        if self.checkpoint is not None and not self._store.is_local:
            write_checkpoint(self._store, self.trial_id, self.checkpoint, self.claim.fence, keeps_before=False)
            self._store.write_history(self.trial_id, self.history, self.claim.fence)

    @property
    def trial_id(self) -> str:
        """The trial's id."""
        return self.claim.trial_id

    def note(self, text: str) -> None:
        """Add a note to the record, once; it is written with the next save."""
        if text not in self.record["notes"]:
            log.warning("%s: %s", self.trial_id, text)
            self.record["notes"].append(text)

    def note_wandb(self, status: str) -> None:
        """Put into the record that the W&B server may have rows of the trial, before it is sent any."""
        if self.record.get("wandb") != status:
            self.record["wandb"] = status
            self.write_record()

    def add(self, history: dict[str, Any], checkpoint: Callable[[], Mapping[str, Any]], outcome: str) -> None:
        """Add an epoch, to be saved when it is due."""
        self.history.append(history)
        if self._job.keep == "best":
            self._keep_if_best(history, checkpoint)
        if outcome != State.RUNNING:
            self.mark_ended(outcome)

    def restore(self) -> None:
        """Load checkpoint and history. What cannot be used is noted in the trial's record."""
        self.checkpoint, notes = read_checkpoint(self._store, self.record)
        self.history = []
        if self.checkpoint is not None:
            self.history = list(self.checkpoint["history"])
            if self._job.keep == "best":
                checkpoint = self.checkpoint
                for history in self.history:
                    self._keep_if_best(history, lambda: checkpoint.get("best"))
        if notes:
            self.record |= {"notes": [*self.record["notes"], *notes], "epoch": len(self.history)}
            self._store.write_record(self.trial_id, self.record, self.claim.fence)
            self._store.write_history(self.trial_id, self.history, self.claim.fence)
            put_right(self._store, self.trial_id, self.checkpoint, self.claim.fence)

    def _keep_if_best(self, history: Mapping[str, Any], checkpoint: Callable[[], Any]) -> None:
        """Keep a copy of the first of the best epochs."""
        value = history[self._job.metric]
        if value is None:
            return
        signed = value if self._job.goal == "maximize" else -value
        if self._best_value is None or signed > self._best_value:
            self._best, self._best_value = checkpoint(), signed

    def save(self, checkpoint: Mapping[str, Any]) -> bool:
        """History, checkpoint, record. False if another process has taken over: then nothing more is written."""
        best = {} if self._best is None else {"best": dict(self._best)}
        try:
            self._store.write_history(self.trial_id, self.history, self.claim.fence)
            write_checkpoint(self._store, self.trial_id, {**checkpoint, **best}, self.claim.fence)
        except NotOursError:
            return False
        self.sum_up()
        return self.write_record()

    def sum_up(self) -> None:
        """Put what follows from the history into the record."""
        self.record |= {
            "epoch": len(self.history),
            "seconds": sum(row["seconds"] for row in self.history),
            "extremes": extremes(self.history),
        }

    def write_record(self) -> bool:
        """Write the record. False if another process has taken over."""
        try:
            self._store.write_record(self.trial_id, self.record, self.claim.fence)
        except NotOursError:
            return False
        return True

    def is_to_stop(self) -> bool:
        """Whether the sweep has decided to end this trial early."""
        return _is_to_stop(self._store, self._job, self.trial_id)

    def mark_ended(self, outcome: str, error: str | None = None) -> None:
        """Put the outcome into the record, which the next save writes: an end is never half stored."""
        self.record |= {"outcome": str(outcome), "error": error, "ended": time.time()}
        if outcome == State.FINISHED and is_stalled(self.history):
            epochs = last_epochs(len(self.history))
            self.record["stalled"] = True
            self.note(f"stalled: gamma = 0 in every step of the last {'epoch' if epochs == 1 else f'{epochs} epochs'}")
        if outcome == State.DIVERGED:
            self.record["diverged"] = {"epoch": self.history[-1]["epoch"], "step": self.history[-1]["step"]}

    def release(self) -> None:
        """After the final record: keep only the checkpoint that is to stay, and give up the claim."""
        self.tidy()
        self.claim.release()

    def tidy(self) -> None:
        """Leave only the checkpoint that is to stay."""
        if self._job.keep == "best" and self._best is not None:
            write_checkpoint(self._store, self.trial_id, self._best, self.claim.fence)
        remove_checkpoints(self._store, self.trial_id, keep_newest=self._job.keep != "none")


def _record_for(job: Job, store: Store, trial_id: str) -> dict[str, Any] | None:
    """The trial's record as the job's sweep sees it: a trial that another sweep has stopped early continues."""
    record = store.record(trial_id)
    if record is None or record["outcome"] != State.STOPPED or not job.sweeps or _is_to_stop(store, job, trial_id):
        return record
    return {**record, "outcome": State.RUNNING.value, "ended": None}


def _is_to_stop(store: Store, job: Job, trial_id: str) -> bool:
    """Whether the job's sweep has decided to end a trial early."""
    return job.early and store.search.ended_early(job.sweeps[0], trial_id)


def extremes(history: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """By metric, its smallest and largest value of all epochs, without the one in which the trial diverged."""
    extremes_by_metric = {}
    for name in filter(is_metric, history[-1] if history else ()):
        values = [row[name] for row in history if row.get(name) is not None and not row["partial"]]
        if values:
            extremes_by_metric[name] = [min(values), max(values)]
    return extremes_by_metric
