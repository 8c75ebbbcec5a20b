"""What a launch shows: trials done of all, running cells, time left, best so far."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from sweeps.plan import FINAL, TrialState
from sweeps.spec import SweepSpec
from sweeps.worker import RowProgress

PLAIN_SECONDS: Final = 15.0


class Progress:
    """A live bar on a terminal; elsewhere one plain line at most every 15 s."""

    def __init__(self, spec: SweepSpec, states: Mapping[str, TrialState], console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._spec = spec
        self._trials = {trial.trial_id: trial for trial in spec.trials}
        self._epochs = {trial.trial_id: trial.config.epochs for trial in spec.trials}
        self._running: set[str] = set()
        self._best: float | None = None
        self._started = self._printed_at = time.monotonic()
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("trials  {task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(spec.name, total=len(self._trials), note="starting")
        self._outcomes: dict[str, str] = {}
        self._done_epochs: dict[str, int] = {}
        self.refresh(states)
        self._epochs_before = sum(self._done_epochs.values())

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def refresh(self, states: Mapping[str, TrialState]) -> None:
        """Take over what the Store says."""
        for trial_id, state in states.items():
            self._outcomes[trial_id] = state.state
            self._done_epochs[trial_id] = self._epochs[trial_id] if state.state in FINAL else state.epoch
        self._running.clear()

    def update(self, rows: Sequence[RowProgress]) -> None:
        """Take over one epoch of a stack."""
        for row in rows:
            self._outcomes[row.trial_id] = row.outcome
            over = row.outcome != "running"
            self._done_epochs[row.trial_id] = self._epochs[row.trial_id] if over else row.epoch
            (self._running.discard if over else self._running.add)(row.trial_id)
            value = row.history.get(self._spec.metric.name)
            if value is not None:
                better = max if self._spec.metric.goal == "maximize" else min
                self._best = value if self._best is None else better(self._best, value)
        self._show(self._note())

    def note(self, text: str) -> None:
        """Say something else for a while."""
        self._show(text)

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return sum(outcome in FINAL for outcome in self._outcomes.values())

    def _show(self, note: str) -> None:
        self._bar.update(self._task, completed=self.done, note=note)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._printed_at >= PLAIN_SECONDS:
            self._printed_at = now
            self._console.print(
                f"{self._spec.name}: {self.done}/{len(self._trials)} trials, {note}",
                highlight=False,
                soft_wrap=True,
            )

    def _note(self) -> str:
        parts = []
        if self._running:
            cells = list(dict.fromkeys(_label(self._trials[t].cell) for t in sorted(self._running)))
            shown = "; ".join(cells[:2]) + (f" and {len(cells) - 2} more cells" if len(cells) > 2 else "")
            parts.append(f"running {shown}")
        if self._best is not None:
            parts.append(f"best {self._spec.metric.name} {self._best:.4f}{self._spec.metric.note}")
        left = self._time_left()
        if left is not None:
            parts.append(f"ETA {left}")
        return ", ".join(parts)

    def _time_left(self) -> timedelta | None:
        """From the epochs trained by this launch and those that are left."""
        trained = sum(self._done_epochs.values()) - self._epochs_before
        if trained <= 0:
            return None
        left = sum(self._epochs.values()) - sum(self._done_epochs.values())
        return timedelta(seconds=round((time.monotonic() - self._started) * left / trained))


def _label(cell: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in cell.items()) or "the only cell"
