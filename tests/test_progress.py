"""What a launch shows while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from test_spec import GOOD, parse

from sweeps import progress as module
from sweeps.progress import Progress
from sweeps.states import TrialState
from sweeps.worker import RowProgress


def test_a_log_file_gets_few_lines_with_counts_cells_best_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """18 trials of 2 epochs, one finished before; one line at most every 15 s."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    spec = parse(GOOD)
    trials = spec.trials
    out = io.StringIO()
    states = {t.trial_id: TrialState() for t in trials} | {trials[-1].trial_id: TrialState("finished", 8, 2)}
    with Progress(spec, states, Console(file=out, width=300)) as progress:
        for second in range(1, 31):
            clock[0] = float(second)
            row = trials[(second - 1) // 2]
            outcome = "running" if second % 2 else "finished"
            progress.update([RowProgress(row.trial_id, 2 - second % 2, outcome, {"test/top1": second / 100})])
    first, second = out.getvalue().splitlines()
    # After 15 s: seven trials have ended here and one before; 15 of 34 epochs are done, 19 are left, one a second.
    best = "best test/top1 {} (selected on test)"
    assert first == f"file: 8/18 trials, running rho=0.2 scheduler=constant, {best.format('0.1500')}, ETA 0:00:19"
    assert second == f"file: 16/18 trials, {best.format('0.3000')}, ETA 0:00:04"
