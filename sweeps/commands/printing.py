"""What the commands print: plans, states, failures, and the log of one trial."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from polysweep.sweeps.console import print_cells, say
from polysweep.sweeps.planning.estimate import Estimate
from polysweep.sweeps.store.states import FINAL, State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import shown_number
from polysweep.trainer.text import last_line, one_line

if TYPE_CHECKING:
    from polysweep.sweeps.planning.plan import Plan
    from polysweep.sweeps.planning.spec_changes import Extension
    from polysweep.sweeps.spec.sweep import Sweep

MOST_CELLS: Final = 60
"""Rows of a table of cells; the rest is counted."""
MOST_IDS: Final = 3
_OPEN: Final = (State.NEW, State.INTERRUPTED, State.RUNNING)
MOST_DAMAGED: Final = 10


def show_plan(plan: Plan, extension: Extension, estimate: Estimate, decisions: Sequence[str] = ()) -> None:
    """Cells with their trials by state, and what a launch would start."""
    from polysweep.sweeps.planning.search_summary import search_summary

    spec, counts = plan.spec, plan.counts()
    added = sum(trial.is_added for trial in plan.trials)
    seeds = len({trial.seed for trial in plan.trials if not trial.is_added}) or len(spec.seeds)
    trials = (
        f"{counts['trials'] - added} trials = {len(plan.members)} cells x their tuned values x {seeds} seeds "
        f"({len(spec.variants)} variants)" + (f", and {added} that results have added" if added else "")
    )
    lines = [*([trials] if plan.trials else []), *search_summary(plan)]
    say(f"{spec.name}: {lines[0]}")
    for line in lines[1:]:
        say(line)
    tuned = ", ".join(spec.tuned) or "nothing"
    say(f"tuned per cell: {tuned}; selected by {spec.metric.name} ({spec.metric.goal}){spec.metric.note}")
    if plan.members:
        _show_cells(plan)
    ended_counts = sum(counts[state] for state in FINAL)
    say(
        f"{counts['new']} new, {counts['interrupted']} interrupted, {counts['running']} running, "
        f"{ended_counts} done{': ' + ended(counts) if ended(counts) else ''}"
    )
    show_extension(spec.name, extension)
    for claim in spec.preregistration.claims:
        say(f"claim{' (frozen)' if extension.known else ', to be frozen by the first launch'}: {claim}")
    say(_starting(plan))
    for line in decisions:
        say(line)
    for line in plan.widths.lines([trial for stack in plan.stacks for trial in stack.trials]):
        say(line)
    say(f"time and cost: {estimate}")


def _show_cells(plan: Plan) -> None:
    rows = []
    for members in plan.members[:MOST_CELLS]:
        states = [plan.state(trial) for trial in members]
        counts = [states.count(state) for state in _OPEN]
        rows.append((members[0].cell, [str(n) for n in (len(states), *counts, len(states) - sum(counts))]))
    tally = plan.counts()
    total = [tally["trials"], *(tally[state] for state in _OPEN), sum(tally[state] for state in FINAL)]
    print_cells("", ("trials", *_OPEN, "ended"), rows, list(map(str, total)), Console())
    if len(plan.members) > MOST_CELLS:
        say(f"and {len(plan.members) - MOST_CELLS} more cells (--json lists all)")


def _starting(plan: Plan) -> str:
    """What a launch would start, in words."""
    from polysweep.sweeps.planning.search_summary import per_point

    parts = []
    stacks = plan.measured_stacks
    if waiting := sum(len(stack.trials) for stack in plan.stacks) - sum(len(stack.trials) for stack in stacks):
        parts.append(f"stacks would start for {waiting} trials, of a K that is to be measured")
    if stacks or not (plan.proposals_left or waiting):
        sizes = " or ".join(map(str, sorted({stack.width for stack in stacks})))
        rows = sum(stack.width for stack in stacks)
        padding = rows - sum(len(stack.trials) for stack in stacks)
        text = f"{len(stacks)} stacks would start" + (f", of K = {sizes}" if sizes else "")
        parts.append(text + (f" ({padding} of their {rows} rows are padding)" if padding else ""))
    if plan.proposals_left:
        parts.append(f"bayes would propose {plan.proposals_left} points, each {per_point(plan)}")
    return "; then ".join(parts)


def show_extension(name: str, extension: Extension) -> None:
    """How the spec differs from the sweep as launched: new trials, trials no longer in it, changed values."""
    if not extension.known:
        return
    say(
        f"since the last launch: {extension.new} trials are new in the spec, {extension.unchanged} unchanged, "
        f"{extension.gone} no longer in it (their results are kept)"
    )
    if extension.changed:
        say(f"{name} was launched with another spec; launch needs --extend:")
        for line in extension.changed:
            say(f"  {one_line(line)}")


def show_status(name: str, summary: Mapping[str, Any], note: str, console: Console | None = None) -> None:
    """The table of `status`."""
    console = console or Console()

    def tell(text: str) -> None:
        console.print(one_line(text), highlight=False, markup=False, soft_wrap=True)

    counts = {**summary["counts"], "stalled": summary["stalled"]}
    states = [state for state in counts if state != "trials" and counts[state]]
    rows = []
    for cell in summary["cells"][:MOST_CELLS]:
        best = "" if cell["best"] is None else shown_number(cell["best"])
        counted = {**cell["counts"], "stalled": cell.get("stalled", 0)}
        rows.append((cell["cell"], [*(str(counted.get(state, 0)) for state in states), best]))
    title = f"{name}: {counts['trials']} trials{note}"
    total = [*(str(counts[state]) for state in states), ""]
    print_cells(title, (*states, f"best {summary['metric']}"), rows, total, console)
    if len(summary["cells"]) > MOST_CELLS:
        tell(f"and {len(summary['cells']) - MOST_CELLS} more cells (--json lists all)")
    _show_damage(summary, tell)
    if summary["stalled"]:
        tell(f"{summary['stalled']} finished trials are stalled: gamma = 0 in every step of their last epochs")
    if summary["proposals_left"]:
        tell(f"{summary['proposals_left']} points are still to be proposed")
    for line in summary["decisions"]:
        tell(line)
    if summary["gone"]:
        tell(f"{summary['gone']} trials are no longer in the spec; their results are kept")
    for holder in summary["launches"]:
        tell(f"launched by {holder}")
    tell(f"time and cost: {Estimate(**summary['estimate'])}")


def _show_damage(summary: Mapping[str, Any], tell: Callable[[str], None]) -> None:
    """The trials whose files cannot be read, each with the file."""
    damaged = [trial for trial in summary["trials"] if trial.get("damage")]
    for trial in damaged[:MOST_DAMAGED]:
        tell(f"failed: {trial['trial_id']}: {trial['damage']}")
    if len(damaged) > MOST_DAMAGED:
        tell(f"and {len(damaged) - MOST_DAMAGED} more damaged trials (--json lists all)")


def show_holders(states: Mapping[str, TrialState]) -> None:
    """Who holds which trials and since when."""
    held: dict[str, list[str]] = {}
    for trial_id, state in states.items():
        if state.state == State.RUNNING:
            held.setdefault(state.holder, []).append(trial_id)
    for holder, trials in held.items():
        more = f" and {len(trials) - MOST_IDS} more" if len(trials) > MOST_IDS else ""
        say(f"{len(trials)} trials are held by {holder}: {', '.join(trials[:MOST_IDS])}{more}")


def show_failures(states: Mapping[str, TrialState], store: Store) -> None:
    """The last line of every failed trial's error, on stderr."""
    for trial_id, state in states.items():
        if state.damage:
            say(f"failed: {trial_id}: {one_line(state.damage)}", sys.stderr)
        elif state.state == State.FAILED:
            record: dict[str, Any] = store.record(trial_id) or {}
            say(f"failed: {trial_id}: {one_line(last_line(record.get('error') or ''))}", sys.stderr)


def matching_trial(sweep: Sweep, prefix: str) -> str:
    """The one trial of a sweep with this prefix of its id. Raises `UserError` if there is none, or several."""
    listed = [one.trial_id for one in (*sweep.trials, *sweep.gone)]
    matching = [trial_id for trial_id in listed if trial_id.startswith(prefix)]
    if len(matching) != 1:
        what = f"is ambiguous ({len(matching)} matches)" if matching else f"matches no trial of {sweep.name}"
        some = ", ".join((matching or listed)[:5])
        raise UserError(f"trial id prefix {prefix!r} {what}; expected one of {some}, ...")
    return matching[0]


def trial_log(store: Store, trial_id: str) -> Iterator[str]:
    """What is known of one trial, line by line: where and when it ran, its epochs, notes, its end, its errors."""
    record = store.record(trial_id)
    if record is None:
        yield f"{trial_id}: not started"
        return
    starts: dict[int, list[str]] = {}
    for session in record.get("sessions", []):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(session.get("started", 0)))
        model = session.get("provenance", {}).get("device_model")
        place = session.get("process", "an unknown process")
        starts.setdefault(session.get("from_epoch", 0), []).append(f"{when} {place} on {model}")
    names = ("train/loss", "val/top1", "test/loss", "test/top1", "gamma/mean")
    yield from (f"started: {text}" for text in starts.pop(0, []))
    for row in store.history(trial_id):
        values = ", ".join(f"{name} {shown_number(row[name])}" for name in names if row.get(name) is not None)
        yield f"epoch {row['epoch']}/{record.get('epochs', '?')}: {values}{' (partial)' if row['partial'] else ''}"
        yield from (f"continued: {text}" for text in starts.pop(row["epoch"], []))
    yield from (f"note: {note}" for note in record.get("notes", []))
    for error in [*record.get("errors", []), record.get("error")]:
        if error:
            yield error.rstrip()
    yield f"{trial_id}: {store.state(trial_id).state} after epoch {record['epoch']}"


def ended(counts: Mapping[str, int]) -> str:
    """`3 finished, 1 diverged`."""
    return ", ".join(f"{counts[state]} {state}" for state in FINAL if counts[state])
