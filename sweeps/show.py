"""What the commands print: plans, states, failures, and the log of one trial."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from sweeps.estimate import Estimate
from sweeps.extend import Extension
from sweeps.plan import Plan
from sweeps.states import FINAL, TrialState
from sweeps.store import Store
from trainer.history import shown_number

MOST_CELLS: Final = 60
"""Rows of a table of cells; the rest is counted."""
MOST_IDS: Final = 3


def show_plan(made: Plan, extension: Extension, estimate: Estimate) -> None:
    """Cells with their trials by state, and what a launch would start."""
    spec, counts = made.spec, made.counts()
    seeds = len({trial.seed for trial in made.trials}) or len(spec.seeds)
    print(
        f"{spec.name}: {counts['trials']} trials = {len(made.members)} cells x their tuned values x {seeds} seeds "
        f"({len(spec.variants)} variants)"
    )
    if spec.method == "bayes":
        print(f"bayes has proposed {len(spec.suggestions)} of {spec.points} points; {made.proposals_left} to come")
    tuned = ", ".join(spec.tuned) or "nothing"
    print(f"tuned per cell: {tuned}; selected by {spec.metric.name} ({spec.metric.goal}){spec.metric.note}")
    if made.members:
        _show_cells(made)
    widths = sorted({stack.width for stack in made.stacks})
    sizes = " or ".join(str(width) for width in widths)
    ended_counts = sum(counts[state] for state in FINAL)
    print(
        f"{counts['new']} new, {counts['interrupted']} interrupted, {counts['running']} running, "
        f"{ended_counts} done{': ' + ended(counts) if ended(counts) else ''}"
    )
    show_extension(spec.name, extension)
    print(f"{len(made.stacks)} stacks would start" + (f", of K = {sizes}" if sizes else ""))
    print(f"time and cost: {estimate}")


def _show_cells(made: Plan) -> None:
    table = Table()
    for column in ("cell", "trials", "new", "interrupted", "running", "ended"):
        table.add_column(column, justify="left" if column == "cell" else "right")
    for members in made.members[:MOST_CELLS]:
        states = [made.state(trial) for trial in members]
        shown = [states.count(state) for state in ("new", "interrupted", "running")]
        table.add_row(label(members[0].cell), str(len(states)), *map(str, shown), str(len(states) - sum(shown)))
    Console().print(table)
    if len(made.members) > MOST_CELLS:
        print(f"and {len(made.members) - MOST_CELLS} more cells (--json lists all)")


def show_extension(name: str, extension: Extension) -> None:
    """What the file adds to the sweep as launched, what has gone from it, and what it says otherwise."""
    if not extension.known:
        return
    print(
        f"since the last launch: {extension.new} trials are new in the file, {extension.unchanged} unchanged, "
        f"{extension.gone} gone from it (kept in the Store)"
    )
    if extension.changed:
        print(f"{name} was launched with another spec; launch needs --extend:")
        for line in extension.changed:
            print(f"  {line}")


def show_status(name: str, found: Mapping[str, Any], note: str, console: Console | None = None) -> None:
    """The table of `status`."""
    counts = found["counts"]
    states = [state for state in counts if state != "trials" and counts[state]]
    table = Table(title=f"{name}: {counts['trials']} trials{note}")
    if found["stalled"]:
        states.append("stalled")
    for column in ("cell", *states, f"best {found['metric']}"):
        table.add_column(column, justify="left" if column == "cell" else "right")
    for cell in found["cells"][:MOST_CELLS]:
        best = "" if cell["best"] is None else shown_number(cell["best"])
        counted = {**cell["counts"], "stalled": cell.get("stalled", 0)}
        table.add_row(label(cell["cell"]), *[str(counted.get(state, 0)) for state in states], best)
    table.add_section()
    table.add_row("all", *[str({**counts, "stalled": found["stalled"]}[state]) for state in states], "")
    console = console or Console()
    console.print(table)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    if len(found["cells"]) > MOST_CELLS:
        say(f"and {len(found['cells']) - MOST_CELLS} more cells (--json lists all)")
    if found["stalled"]:
        say(f"{found['stalled']} finished trials are stalled: gamma = 0 in every step of their last epochs")
    if found["proposals_left"]:
        say(f"{found['proposals_left']} points are still to be proposed")
    if found["gone"]:
        say(f"{found['gone']} trials have gone from the file; they are kept in the Store")
    for holder in found["launches"]:
        say(f"launched by {holder}")
    say(f"time and cost: {Estimate(**found['estimate'])}")


def show_holders(states: Mapping[str, TrialState]) -> None:
    """Who holds which trials and since when."""
    held: dict[str, list[str]] = {}
    for trial_id, state in states.items():
        if state.state == "running":
            held.setdefault(state.holder, []).append(trial_id)
    for holder, trials in held.items():
        more = f" and {len(trials) - MOST_IDS} more" if len(trials) > MOST_IDS else ""
        print(f"{len(trials)} trials are held by {holder}: {', '.join(trials[:MOST_IDS])}{more}", flush=True)


def show_failures(states: Mapping[str, TrialState], store: Store) -> None:
    """The last line of every failed trial's error, on stderr."""
    for trial_id, state in states.items():
        if state.damage:
            print(f"failed: {trial_id}: {state.damage}", file=sys.stderr)
        elif state.state == "failed":
            record: dict[str, Any] = store.record(trial_id) or {}
            last = (record.get("error") or "").strip().splitlines()[-1:]
            print(f"failed: {trial_id}: {' '.join(last)}", file=sys.stderr)


def trial_log(store: Store, trial_id: str) -> Iterator[str]:
    """What is known of one trial, line by line: where and when it ran, its epochs, notes, its end, its errors."""
    record = store.record(trial_id)
    if record is None:
        yield f"{trial_id}: not started"
        return
    starts: dict[int, list[str]] = {}
    for session in record["sessions"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(session["started"]))
        model = session.get("provenance", {}).get("device_model")
        starts.setdefault(session["from_epoch"], []).append(f"{when} {session['process']} on {model}")
    names = ("train/loss", "val/top1", "test/loss", "test/top1", "gamma/mean")
    yield from (f"started: {text}" for text in starts.pop(0, []))
    for row in store.history(trial_id):
        values = ", ".join(f"{name} {shown_number(row[name])}" for name in names if row.get(name) is not None)
        yield f"epoch {row['epoch']}/{record.get('epochs', '?')}: {values}{' (partial)' if row['partial'] else ''}"
        yield from (f"continued: {text}" for text in starts.pop(row["epoch"], []))
    yield from (f"note: {note}" for note in record["notes"])
    for error in [*record.get("errors", []), record.get("error")]:
        if error:
            yield error.rstrip()
    yield f"{trial_id}: {store.state(trial_id).state} after epoch {record['epoch']}"


def ended(counts: Mapping[str, int]) -> str:
    """`3 finished, 1 diverged`."""
    return ", ".join(f"{counts[state]} {state}" for state in FINAL if counts[state])


def label(cell: Mapping[str, Any]) -> str:
    """A cell in words."""
    return " ".join(f"{key}={value}" for key, value in cell.items()) or "(all parameters fixed)"
