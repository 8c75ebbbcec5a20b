"""The `polysweep` command. Every user error is one line and exit code 2, without a traceback."""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from analysis.cli import app as analysis_app
from sweeps.interruption import Interruption
from sweeps.options import (
    DEFAULT_STORE,
    DataOption,
    InsecureOption,
    JsonOption,
    NameArgument,
    SpecArgument,
    StoreOption,
    WandbOption,
    open_store,
)
from sweeps.printing import PrintableFormatter, say, warn
from trainer import __version__
from trainer.registry import UserError, import_paths
from trainer.text import printable

if TYPE_CHECKING:
    from sweeps.store import Store

app = typer.Typer(
    name="polysweep",
    help="Sweeps over sharpness-aware optimizers: plan, launch, submit, status, stop, logs, sync, "
    "pull, table, plot, compare, report, dashboard.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point: errors of the user and interruptions become exit codes."""
    interruption = Interruption.of_process()
    interruption.install(for_process=True)
    sys.path += import_paths()
    if logging.lastResort is not None:  # what prints the warnings of a program that sets up no logging
        logging.lastResort.setFormatter(PrintableFormatter())
    try:
        app()
    except BaseException as error:
        if interruption.signal:  # it can break off anything anywhere, also where it becomes another error
            interruption.exit()
        if isinstance(error, UserError):
            message = printable(" ".join(str(error).splitlines()))  # one line, whatever a user's code says
            print(f"error: {message}", file=sys.stderr)
            if interruption.lost:
                interruption.exit()
            sys.exit(2)
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()  # the reader of our output has gone, as `head` does
            sys.exit(128 + signal.SIGPIPE)
        raise


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"polysweep {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before a command."""


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
    from sweeps.preflight import data_folder, remarks
    from sweeps.single import train_one
    from sweeps.source import read_settings
    from trainer.config import TrialConfig
    from trainer.tracking import resolve_mode

    config = TrialConfig.parse(read_settings(settings))
    for remark in remarks(config):
        warn(remark)
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
    """Show what a launch would do: cells, trials by state, stacks, time and cost. Starts and writes nothing."""
    from sweeps.estimate import estimate
    from sweeps.extend import compare
    from sweeps.plan import plan as make_plan
    from sweeps.preflight import data_folder
    from sweeps.show import show_plan
    from sweeps.spec import SweepSpec
    from sweeps.start import warnings

    place = open_store(store)
    sweep = place.known(SweepSpec.load(spec))
    made = make_plan(sweep, place.states(sweep), data_folder(data_dir, sweep.launch.data_dir))
    extension = compare(sweep, place)
    cost = estimate(made.stacks, made.states, sweep.settings.launch, place, proposals=made.proposals_left)
    for warning in [*warnings(sweep), *made.notes]:
        warn(warning)
    if as_json:
        print(json.dumps({**made.as_json(), "extension": extension.as_json(), "estimate": cost.as_json()}))
        return
    show_plan(made, extension, cost)


@app.command()
def launch(
    spec: SpecArgument,
    store: StoreOption = DEFAULT_STORE,
    wandb: WandbOption = None,
    data_dir: DataOption = None,
    address: Annotated[
        str | None,
        typer.Option("--address", help="A Ray cluster: auto or ray://HOST:10001. [default: a Ray of its own]"),
    ] = None,
    insecure: InsecureOption = False,
    extend: Annotated[
        bool, typer.Option("--extend", help="Take a spec that differs from the one launched under this name.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run the failed trials again, from their checkpoints.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Let Ray and W&B speak.")] = False,
) -> None:
    """Run every trial of a sweep that has not ended. The same command continues after any interruption."""
    from sweeps.spec import SweepSpec
    from sweeps.start import Options, start
    from trainer.tracking import resolve_mode

    options = Options(resolve_mode(wandb), data_dir, verbose, extend, retry_failed, address, insecure)
    sweep, place = SweepSpec.load(spec), _writable(store)
    if address is None:
        raise typer.Exit(start(sweep, place, options))
    from sweeps.rayenv import prepare

    prepare(address, insecure)
    from sweeps.cluster import start_at

    raise typer.Exit(start_at(address, sweep, place, options))


@app.command()
def submit(
    spec: SpecArgument,
    address: Annotated[str, typer.Option("--address", help="The cluster's dashboard, http://HEAD:8265.")],
    store: StoreOption = DEFAULT_STORE,
    wandb: WandbOption = None,
    data_dir: DataOption = None,
    requirements: Annotated[
        Path | None, typer.Option("--requirements", help="A file of packages that the nodes lack.")
    ] = None,
    insecure: InsecureOption = False,
    extend: Annotated[bool, typer.Option("--extend", help="As of launch.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="As of launch.")] = False,
) -> None:
    """Launch a sweep as a Ray Job: its driver lives on the cluster, whatever becomes of this machine."""
    from sweeps.rayenv import prepare
    from sweeps.spec import SweepSpec

    sweep = SweepSpec.load(spec)
    flags = [flag for flag, given in (("--extend", extend), ("--retry-failed", retry_failed)) if given]
    prepare(address, insecure)
    from sweeps.cluster import submit as submit_job

    job = submit_job(
        sweep, address, store, wandb=wandb, data=data_dir, flags=flags, requirements=requirements, insecure=insecure
    )
    say(f"{sweep.name}: submitted as {job}")
    say(f"polysweep status {sweep.name} --store {store} --watch shows where it stands; polysweep stop ends it")


@app.command()
def status(
    name: NameArgument,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every two seconds, until all has ended.")
    ] = False,
) -> None:
    """Show where a launched sweep stands, cell by cell."""
    from sweeps.show import show_status
    from sweeps.status import status_of

    place = open_store(store)
    sweep = place.launched(name)
    found = status_of(sweep, place)
    if as_json:
        print(json.dumps(found))
        return
    console = Console()
    while True:
        if watch and console.is_terminal:
            console.clear()
        show_status(name, found, sweep.metric.note, console)
        counts = found["counts"]
        left = counts["new"] + counts["interrupted"] + counts["running"] + found["proposals_left"]
        if not watch or not left or (found["over"] and not counts["running"]):
            return
        time.sleep(2.0)
        sweep = place.launched(name)
        found = status_of(sweep, place)


@app.command()
def stop(name: NameArgument, store: StoreOption = DEFAULT_STORE) -> None:
    """Stop every launch of a sweep in order: finished epochs are stored, and the next launch goes on from there."""
    from sweeps.running import stop as stop_launches

    place = _writable(store)
    place.require_sweep(name)
    raise typer.Exit(0 if stop_launches(place, name, say) else 1)


@app.command()
def logs(
    name: NameArgument,
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="A trial's id, or how it begins.")],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Print what is known of one trial: where it ran, its epochs, notes, errors."""
    from sweeps.show import trial_log

    place = open_store(store)
    sweep = place.launched(name)
    listed = [found.trial_id for found in (*sweep.trials, *sweep.gone)]
    matching = [trial_id for trial_id in listed if trial_id.startswith(trial)]
    if len(matching) != 1:
        many = f"{len(matching)} trials of {name} begin so" if matching else f"{name} has no such trial"
        raise UserError(f"TRIAL {trial!r}: {many}; expected one of {', '.join((matching or listed)[:5])}, ...")
    for line in trial_log(place, matching[0]):
        say(line)


@app.command()
def sync(
    name: NameArgument,
    store: StoreOption = DEFAULT_STORE,
    again: Annotated[bool, typer.Option("--again", help="Try again what was deleted on the server.")] = False,
) -> None:
    """Upload to the W&B server exactly what it lacks of a sweep: runs, rows of killed processes, tags."""
    from sweeps.reconcile import sync as sync_sweep
    from sweeps.start import use_wandb_settings

    place = _writable(store)
    sweep = place.launched(name)
    use_wandb_settings(sweep.settings.project, sweep.settings.entity)
    trials = {trial.trial_id: trial.values for trial in sweep.trials}
    raise typer.Exit(sync_sweep(name, trials, place, say, again=again))


def _writable(root: str) -> Store:
    store = open_store(root)
    store.check_writable()
    return store


app.add_typer(analysis_app)


if __name__ == "__main__":
    main()
