"""What a launch shows while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from polysweep.sweeps.console import label
from polysweep.sweeps.scheduling import progress as module
from polysweep.sweeps.scheduling.progress import Progress
from polysweep.sweeps.store.states import TrialState
from polysweep.sweeps.worker.stack_run import RowProgress
from tests.support.specs import GOOD, parse


def test_a_log_file_gets_few_lines_with_counts_time_left_best_and_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """18 trials of 2 epochs, one finished before; one line at most every 10 s, which is in the file at once."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    spec = parse(GOOD)
    trials = spec.trials
    out = Flushed()
    states = {t.trial_id: TrialState() for t in trials} | {trials[-1].trial_id: TrialState("finished", 8, 2)}
    with Progress(spec, states, Console(file=out, width=300)) as progress:
        for second in range(1, 31):
            clock[0] = float(second)
            row = trials[(second - 1) // 2]
            outcome = "running" if second % 2 else "finished"
            progress.update([RowProgress(row.trial_id, 2 - second % 2, outcome, {"test/top1": second / 100})])
    first, second, third = out.flushed.splitlines()
    # After 10 s: five trials have ended here and one before; 10 of 34 epochs are done, 24 are left, one a second.
    best = "best test/top1 {} (selected on test)"
    assert first == f"file: 6/18 trials, 33 %, ETA 0:00:24, {best.format('0.1000')}"
    assert second == f"file: 11/18 trials, 61 %, ETA 0:00:14, {best.format('0.2000')}"
    assert third == f"file: 16/18 trials, 88 %, ETA 0:00:04, {best.format('0.3000')}"


def test_a_plain_line_names_the_running_cells_and_comes_also_where_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    spec, out = parse(GOOD), io.StringIO()
    with Progress(spec, {}, Console(file=out, width=300)) as progress:
        clock[0] = 10.0
        progress.update([RowProgress(spec.trials[0].trial_id, 1, "running", {})])
        clock[0] = 15.0
        progress.tick()
        clock[0] = 20.0
        progress.tick()
    first, second = out.getvalue().splitlines()
    assert first == "file: 0/18 trials, 0 %, ETA 0:05:50, running rho=0.1 scheduler=constant"
    assert second == "file: 0/18 trials, 0 %, ETA 0:11:40, running rho=0.1 scheduler=constant", "in a long epoch too"


def test_a_report_costs_the_same_however_many_trials_are_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is put into words where a trial begins and where it ends, not in every report."""
    spec = parse(GOOD.replace("seeds: 3", "seeds: 100"))
    labelled: list[object] = []
    monkeypatch.setattr(module, "label", lambda cell: labelled.append(cell) or label(cell))
    with Progress(spec, {}, Console(file=io.StringIO())) as progress:
        progress.update([RowProgress(trial.trial_id, 1, "running", {}) for trial in spec.trials])
        assert len(labelled) == len(spec.trials) == 600
        for _ in range(10):
            progress.update([RowProgress(spec.trials[0].trial_id, 1, "running", {})])
        assert len(labelled) == 600
        first_two = "rho=0.1 scheduler=constant; rho=0.2 scheduler=constant"
        assert progress._note() == f"running {first_two} and 2 more cells"
        progress.update([RowProgress(trial.trial_id, 2, "finished", {}) for trial in spec.trials])
        assert len(labelled) == 1200 and progress._note() == ""


class Flushed(io.StringIO):
    """What a reader of the file sees while it is being written."""

    flushed = ""

    def flush(self) -> None:
        self.flushed = self.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_count_bar_percent_and_time_left_are_whole_at_any_usual_width(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long name and long cells are cut, never they: also with thousands of trials and days to go."""
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    name = "opt-deterministic-on-everything-there-is-cifar100"
    spec = parse(GOOD.replace("seeds: 3", "seeds: 600") + f"name: {name}\n")
    out = io.StringIO()
    console = Console(file=out, width=width, height=20, force_terminal=True, color_system=None, _environ={})
    progress = Progress(spec, {}, console)
    clock[0] = 1e6
    progress.update([RowProgress(trial.trial_id, 1, "running", {"test/top1": 0.5}) for trial in spec.trials[:7]])
    progress.update([RowProgress(trial.trial_id, 2, "finished", {}) for trial in spec.trials[7:1807]])
    console.print(progress._bar.get_renderable())
    (line,) = out.getvalue().splitlines()
    assert len(line) <= width
    assert "opt-determinis" in line and " 1800/3600 " in line and " 50% " in line, line
    assert "━━━━━" in line
    assert f" ETA {progress._time_left()} " in line, line
