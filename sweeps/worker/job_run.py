"""Runs the stacks of one job: a point's seeds are several if they cannot be stacked, or stand at different epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polysweep.sweeps.job import Job, RowProgress
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.wandb_runs import Online


class JobRun:
    """The stacks one after the other; in turn, epoch by epoch, if their point may be ended early.

    `advance` trains one epoch of one stack; `close` is always to be called.
    """

    def __init__(
        self, jobs: Sequence[Job], online: Online | None = None, interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        self.in_turn = any(job.early for job in jobs)
        self._left = [(job.epoch, StackRun(job, online, interrupted)) for job in jobs]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do here."""
        return not self._left

    def advance(self) -> list[RowProgress]:
        """Train an epoch of the stack that is next; returns where its trials stand. See `StackRun.advance`."""
        epoch, run = self._left[0]
        progress = run.advance()
        if progress is None or run.is_over:
            run.close()
            self._left.pop(0)
        elif self.in_turn:
            now = max([epoch, *(row.epoch for row in progress)])
            self._left = sorted([*self._left[1:], (now, run)], key=lambda stack: stack[0])
        return progress or []

    def flush(self) -> None:
        """Store now what is not stored yet; safe in a signal's handler."""
        for _, run in list(self._left):
            run.flush()

    def close(self) -> None:
        """Store what is not stored yet, and give up the claims. Raises the first error, after the rest is closed."""
        if self._left:
            _, run = self._left.pop(0)
            try:
                run.close()
            finally:
                self.close()
