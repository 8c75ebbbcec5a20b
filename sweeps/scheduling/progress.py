"""What a launch shows: trials done of all, percent, time left; best so far and running cells if there is room."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import islice
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

from polysweep.sweeps.console import label
from polysweep.sweeps.job import RowProgress
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.states import FINAL, State, TrialState
from polysweep.trainer.history import shown_number

PLAIN_SECONDS: Final = 10.0
UNKNOWN: Final = "-:--:--"


class Progress:
    """A live bar on a terminal; elsewhere one plain line at most every 10 s."""

    def __init__(self, spec: SweepSpec, states: Mapping[str, TrialState], console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._running: set[str] = set()
        self._cells: Counter[str] = Counter()  # running trials, by their cell in words
        self._best: float | None = None
        self._outcomes: dict[str, str] = {}
        self._done_epochs: dict[str, int] = {}
        self._ended = self._trained = 0  # trials that have ended, and epochs of all trials that are behind
        self._started = self._printed_at = time.monotonic()
        width = self._console.width
        self._bar = Bar(
            TextColumn("{task.description}", markup=False, table_column=_cut(max_width=max(8, width // 5))),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(width=max(6, width // 6))),
            TaskProgressColumn(table_column=Column(no_wrap=True)),
            TextColumn("ETA {task.fields[left]}", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}", markup=False, table_column=_cut(ratio=1)),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
            expand=True,
        )
        self._task = self._bar.add_task(spec.name, total=len(spec.trials), note="starting", left=UNKNOWN)
        self.grow(spec)
        self.refresh(states)
        self._trained_before = self._trained

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def grow(self, spec: SweepSpec) -> None:
        """Replace the sweep, which may have new points."""
        self._spec = spec
        self._trials = {trial.trial_id: trial for trial in spec.trials}
        self._total = (spec.run_cap or 0) if spec.method == "bayes" else len(self._trials)
        self._all_epochs = sum(trial.epochs for trial in spec.trials)
        self._bar.update(self._task, total=self._total)

    def refresh(self, states: Mapping[str, TrialState]) -> None:
        """Show the states from the Store."""
        for trial_id, state in states.items():
            self._set(trial_id, state.state, state.epoch)
        self._running.clear()
        self._cells.clear()

    def update(self, rows: Sequence[RowProgress]) -> None:
        """Show one epoch of a stack."""
        for row in rows:
            self._set(row.trial_id, row.outcome, row.epoch)
            self._set_running(row.trial_id, row.outcome == State.RUNNING)
            value = row.history.get(self._spec.metric.name)
            if value is not None:
                better = max if self._spec.metric.goal == "maximize" else min
                self._best = value if self._best is None else better(self._best, value)
        self._show(self._note())

    def _set(self, trial_id: str, outcome: str, epoch: int) -> None:
        if trial_id not in self._trials:
            return
        over = outcome in FINAL
        epochs = self._trials[trial_id].epochs if over else epoch
        self._ended += over - (self._outcomes.get(trial_id) in FINAL)
        self._trained += epochs - self._done_epochs.get(trial_id, 0)
        self._outcomes[trial_id], self._done_epochs[trial_id] = outcome, epochs

    def _set_running(self, trial_id: str, is_running: bool) -> None:
        """Keep which cells are running: a report must not cost more where thousands of trials run."""
        if is_running == (trial_id in self._running):
            return
        (self._running.add if is_running else self._running.remove)(trial_id)
        cell = label(self._trials[trial_id].cell)
        self._cells[cell] += 1 if is_running else -1
        if not self._cells[cell]:
            del self._cells[cell]

    def note(self, text: str) -> None:
        """Say something else for a while."""
        self._show(text)

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return self._ended

    def tick(self) -> None:
        """Print the progress if it is time to, even if nothing has happened."""
        if not self._console.is_terminal and time.monotonic() - self._printed_at >= PLAIN_SECONDS:
            self._show(self._note())

    def _show(self, note: str) -> None:
        seconds = self._time_left()
        left = UNKNOWN if seconds is None else str(seconds)
        self._bar.update(self._task, completed=self.done, note=note, left=left)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._printed_at >= PLAIN_SECONDS:
            self._printed_at = now
            share = 100 * self.done // self._total if self._total else 0
            parts = [f"{self._spec.name}: {self.done}/{self._total} trials", f"{share} %", f"ETA {left}", note]
            text = ", ".join(part for part in parts if part)
            self._console.print(text, highlight=False, soft_wrap=True, markup=False)
            self._console.file.flush()

    def _note(self) -> str:
        parts = []
        if self._best is not None:
            parts.append(f"best {self._spec.metric.name} {shown_number(self._best)}{self._spec.metric.note}")
        if self._cells:
            shown, more = "; ".join(islice(self._cells, 2)), len(self._cells) - 2
            parts.append(f"running {shown}" + (f" and {more} more cells" if more > 0 else ""))
        return ", ".join(parts)

    def _time_left(self) -> timedelta | None:
        """From the epochs trained by this launch and those that are left."""
        trained = self._trained - self._trained_before
        if trained <= 0:
            return None
        left = self._all_epochs - self._trained
        return timedelta(seconds=round((time.monotonic() - self._started) * left / trained))


def _cut(**size: int) -> Column:
    """A column that is cut before the others are."""
    return Column(no_wrap=True, overflow="ellipsis", **size)  # type: ignore[arg-type]
