"""The `polysweep` command. Every user error is one line and exit code 2, without a traceback."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sweeps.preflight import import_paths
from trainer.registry import UserError

if TYPE_CHECKING:
    from sweeps.plan import Plan, TrialState
    from sweeps.spec import SweepSpec
    from sweeps.store import Store
    from trainer.tracking import Mode

app = typer.Typer(
    name="polysweep",
    help="Sweeps over sharpness-aware optimizers: plan, launch, status, table, plot, report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

StoreOption = Annotated[
    str, typer.Option("--store", envvar="POLYSWEEP_STORE", help="Folder of the durable trial records.")
]
WandbOption = Annotated[
    str | None,
    typer.Option("--wandb", help="online, offline or disabled. [default: online where logged in, else offline]"),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        envvar="POLYSWEEP_DATA",
        help="Folder of the data sets. [default: launch.data_dir, else ./polysweep-data]",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SpecArgument = Annotated[Path, typer.Argument(metavar="SPEC", help="The sweep spec, a YAML file.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The sweep's name.")]
MetricOption = Annotated[str | None, typer.Option("--metric", help="A history column. [default: the sweep's metric]")]
EpochOption = Annotated[str, typer.Option("--epoch", help="best (by the sweep's metric) or last.")]
DEFAULT_STORE = "./polysweep-store"


def main() -> None:
    """Entry point: errors of the user and interruptions become exit codes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    sys.path += import_paths()
    try:
        app()
    except UserError as error:
        print(f"error: {' '.join(str(error).splitlines())}", file=sys.stderr)  # one line, whatever a user's code says
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone, as `head` does
        sys.exit(128 + signal.SIGPIPE)


@app.command()
def train(
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Fields of the trial's config.")],
    store: StoreOption = DEFAULT_STORE,
    wandb: WandbOption = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Torch threads.")] = 1,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    data_dir: DataOption = None,
) -> None:
    """Train one trial: the trainer, Store and claims of a sweep, without Ray."""
    from sweeps.preflight import data_folder
    from sweeps.single import train_one
    from sweeps.spec import read_settings
    from trainer.config import TrialConfig
    from trainer.tracking import resolve_mode

    config = TrialConfig.parse(read_settings(settings))
    code = train_one(
        config,
        _writable(store),
        wandb=resolve_mode(wandb),
        threads=threads,
        device=device,
        data=data_folder(data_dir),
        console=Console(),
    )
    raise typer.Exit(code)


@app.command()
def plan(
    spec: SpecArgument, store: StoreOption = DEFAULT_STORE, data_dir: DataOption = None, as_json: JsonOption = False
) -> None:
    """Show what a launch would do: cells, trials by state, stacks. Starts and writes nothing."""
    from sweeps.plan import plan as make_plan
    from sweeps.preflight import data_folder
    from sweeps.spec import SweepSpec

    sweep = SweepSpec.load(spec)
    made = make_plan(sweep, _store(store).states(sweep), data_folder(data_dir, sweep.launch.data_dir))
    for warning in [*_warnings(sweep), *made.notes]:
        print(f"warning: {warning}", file=sys.stderr)
    if as_json:
        print(json.dumps(made.as_json()))
        return
    _show_plan(made)


@app.command()
def launch(
    spec: SpecArgument,
    store: StoreOption = DEFAULT_STORE,
    wandb: WandbOption = None,
    data_dir: DataOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Let Ray and W&B speak.")] = False,
) -> None:
    """Run every trial of a sweep that has not ended. The same command continues after any interruption."""
    from sweeps.plan import plan as make_plan
    from sweeps.preflight import check_trials, data_folder
    from sweeps.spec import SweepSpec
    from trainer.tracking import resolve_mode

    mode = resolve_mode(wandb)
    sweep = SweepSpec.load(spec)
    place = _writable(store)
    data = data_folder(data_dir, sweep.launch.data_dir)
    made = make_plan(sweep, place.states(sweep), data)
    starting = [trial for stack in made.stacks for trial in stack.trials]
    check_trials([trial.config for trial in starting], data, sweep.launch.device)
    for warning in [*_warnings(sweep), *made.notes, *_changes_of_device(made, place)]:
        print(f"warning: {warning}", file=sys.stderr)
    place.write_sweep(sweep.name, sweep.text, [{"trial_id": t.trial_id, "cell": dict(t.cell)} for t in sweep.trials])
    counts = made.counts()
    if not made.stacks and not counts["running"]:
        print(
            f"{sweep.name}: nothing to start, all {counts['trials']} trials have ended ({_ended(counts)})", flush=True
        )
        _complete_wandb(made, place, mode)
        _show_failures(made.states, place)
        raise typer.Exit(1 if counts["failed"] else 0)
    print(
        f"{sweep.name}: {counts['trials']} trials in {len(made.cells())} cells: "
        f"{counts['new']} new, {counts['interrupted']} to continue, {counts['running']} running elsewhere, "
        f"{_ended(counts) or '0 ended'}",
        flush=True,
    )
    if verbose:
        os.environ["WANDB_SILENT"] = "false"
    from sweeps.launch import launch as run

    result = run(sweep, place, wandb=mode, data=data, verbose=verbose)
    after = make_plan(sweep, result.states)
    if result.exit_code < 128:  # not interrupted
        _complete_wandb(after, place, mode)
    counts = after.counts()
    left = counts["new"] + counts["interrupted"] + counts["running"]
    print(f"{sweep.name}: {_ended(counts) or '0 ended'}" + (f", {left} left: launch again" if left else ""))
    _show_failures(result.states, place)
    raise typer.Exit(result.exit_code)


@app.command()
def status(name: NameArgument, store: StoreOption = DEFAULT_STORE, as_json: JsonOption = False) -> None:
    """Show where a launched sweep stands, cell by cell."""
    from sweeps.status import status_of

    place = _store(store)
    spec = _launched(name, place)
    found = status_of(spec, place)
    if as_json:
        print(json.dumps(found))
        return
    counts = found["counts"]
    states = [state for state in counts if state != "trials" and counts[state]]
    table = Table(title=f"{name}: {counts['trials']} trials{spec.metric.note}")
    for column in ("cell", *states, f"best {found['metric']}"):
        table.add_column(column, justify="left" if column == "cell" else "right")
    for cell in found["cells"]:
        best = "" if cell["best"] is None else f"{cell['best']:.4f}"
        table.add_row(_label(cell["cell"]), *[str(cell["counts"].get(s, 0)) for s in states], best)
    table.add_section()
    table.add_row("all", *[str(counts[state]) for state in states], "")
    Console().print(table)


@app.command()
def table(
    name: NameArgument,
    store: StoreOption = DEFAULT_STORE,
    metric: MetricOption = None,
    epoch: EpochOption = "best",
    format_: Annotated[str, typer.Option("--format", help="markdown, latex or csv.")] = "markdown",
) -> None:
    """Print mean +- std tables: radii down, schedulers across, n wherever a cell is not complete."""
    from analysis.pull import pull
    from analysis.select import select
    from analysis.tables import render

    place = _store(store)
    print(render(select(pull(name, place), metric=metric, epoch=epoch), format_))


@app.command()
def plot(
    name: NameArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder for the plots.")],
    store: StoreOption = DEFAULT_STORE,
    metric: MetricOption = None,
    epoch: EpochOption = "best",
) -> None:
    """Draw accuracy against the radius, training curves and step sizes, as PNG and SVG."""
    from analysis.plots import save_all
    from analysis.pull import pull
    from analysis.select import select

    for path in save_all(select(pull(name, _store(store)), metric=metric, epoch=epoch), out):
        print(path)


@app.command()
def report(
    name: NameArgument,
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")],
    store: StoreOption = DEFAULT_STORE,
    metric: MetricOption = None,
    epoch: EpochOption = "best",
) -> None:
    """Write one self-contained HTML page: tables, plots, selection, failures, spec, provenance."""
    from analysis.pull import pull
    from analysis.report import write_report
    from analysis.select import select

    write_report(select(pull(name, _store(store)), metric=metric, epoch=epoch), out)
    print(out)


def _store(root: str) -> Store:
    from sweeps.store import Store

    return Store(root)


def _writable(root: str) -> Store:
    store = _store(root)
    store.check_writable()
    return store


def _launched(name: str, store: Store) -> SweepSpec:
    from sweeps.spec import SweepSpec

    return SweepSpec.parse(store.sweep_spec(name), f"sweep {name}", name)


def _warnings(spec: SweepSpec) -> list[str]:
    over = {
        (trial.config.lr, trial.config.lr_min)
        for trial in spec.trials
        if trial.config.lr_min is not None and trial.config.lr_min >= (trial.config.lr or 0)
    }
    return [f"cosine with lr_min {low} >= lr {lr}: the step size never falls" for lr, low in sorted(over)]


def _changes_of_device(made: Plan, store: Store) -> list[str]:
    """Trials to be continued elsewhere than where they began: they need not be bitwise what they would have been."""
    from sweeps.provenance import differences, provenance

    launch = made.spec.launch
    found: Counter[str] = Counter()
    for trial in made.trials:
        if made.state(trial) == "interrupted" and made.states[trial.trial_id].epoch:
            before = (store.record(trial.trial_id) or {}).get("provenance", {})
            found[differences(before, provenance(launch.device, launch.cpus))] += 1
    return [f"{count} trials continue on another kind of device: {text}" for text, count in found.items() if text]


def _complete_wandb(made: Plan, store: Store, mode: Mode) -> None:
    """Write the runs of ended trials that W&B lacks, for example because a launch was killed between the two."""
    from sweeps.plan import FINAL
    from sweeps.reconcile import complete

    ended = {t.trial_id: t.config for t in made.trials if made.state(t) in FINAL}
    complete(ended, store, mode)


def _show_plan(made: Plan) -> None:
    spec, counts = made.spec, made.counts()
    cells = made.cells()
    seeds = len({trial.config.seed for trial in made.trials})
    print(
        f"{spec.name}: {counts['trials']} trials = {len(cells)} cells x their tuned values x {seeds} seeds "
        f"({len(spec.variants)} variants)"
    )
    tuned = ", ".join(spec.tuned) or "nothing"
    print(f"tuned per cell: {tuned}; selected by {spec.metric.name} ({spec.metric.goal}){spec.metric.note}")
    table = Table()
    for column, justify in (
        ("cell", "left"),
        ("trials", "right"),
        ("new", "right"),
        ("interrupted", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for column in ("running", "ended"):
        table.add_column(column, justify="right")
    for cell in cells:
        states = [made.state(trial) for trial in made.trials if dict(trial.cell) == cell]
        shown = [states.count(state) for state in ("new", "interrupted", "running")]
        table.add_row(_label(cell), str(len(states)), *map(str, shown), str(len(states) - sum(shown)))
    Console().print(table)
    widths = sorted({stack.width for stack in made.stacks})
    sizes = " or ".join(str(width) for width in widths)
    print(
        f"{counts['new']} new, {counts['interrupted']} interrupted, {counts['running']} running, "
        f"{counts['trials'] - counts['new'] - counts['interrupted'] - counts['running']} done"
        f"{': ' + _ended(counts) if _ended(counts) else ''}"
    )
    print(f"{len(made.stacks)} stacks would start" + (f", of K = {sizes}" if sizes else ""))


def _ended(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{counts[state]} {state}" for state in ("finished", "diverged", "failed", "stopped") if counts[state]
    )


def _show_failures(states: Mapping[str, TrialState], store: Store) -> None:
    for trial_id, state in states.items():
        if state.state == "failed":
            record: dict[str, Any] = store.record(trial_id) or {}
            last = (record.get("error") or "").strip().splitlines()[-1:]
            print(f"failed: {trial_id}: {' '.join(last)}", file=sys.stderr)


def _label(cell: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in cell.items()) or "(all parameters fixed)"
