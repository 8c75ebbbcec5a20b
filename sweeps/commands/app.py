"""The commands around a sweep: train, plan, import, launch, submit, status, replicate, stop, logs, sync."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from polysweep.sweeps.commands.options import (
    DEFAULT_STORE,
    AddressOption,
    CompareOption,
    CountOption,
    DataOption,
    InsecureOption,
    JsonOption,
    LooksOption,
    MarginOption,
    NameArgument,
    ReportOnOption,
    SpecArgument,
    StoreOption,
    WandbOption,
    WandbSweepOption,
    compared_field,
    open_store,
    whole_numbers,
)
from polysweep.sweeps.console import say, warn

if TYPE_CHECKING:
    from polysweep.sweeps.store.store import Store

app = typer.Typer()


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
    from polysweep.sweeps.commands.train import train_one
    from polysweep.sweeps.planning.preflight import data_folder, remarks
    from polysweep.sweeps.spec.yaml_lines import read_settings
    from polysweep.trainer.config import TrialConfig
    from polysweep.trainer.wandb_runs import resolve_mode

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
    spec: SpecArgument,
    store: StoreOption = DEFAULT_STORE,
    data_dir: DataOption = None,
    count: CountOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a launch would do: cells, trials by state, stacks, time and cost. Starts and writes nothing."""
    from polysweep.sweeps.commands.plan import plan_launch
    from polysweep.sweeps.commands.printing import show_plan
    from polysweep.sweeps.spec.spec import SweepSpec

    planned = plan_launch(SweepSpec.load(spec, count=count), open_store(store), data_dir)
    for warning in planned.warnings:
        warn(warning)
    if as_json:
        parts = {"extension": planned.extension.as_json(), "estimate": planned.estimate.as_json()}
        print(json.dumps({**planned.plan.as_json(), **parts, "decisions": planned.decisions}))
        return
    show_plan(planned.plan, planned.extension, planned.estimate, planned.decisions)


@app.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A W&B sweep file.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Where the spec is written. [default: standard output]")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter that the file lacks, or that replaces its own."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that --out names.")] = False,
) -> None:
    """Translate a W&B sweep file into a spec; what has no meaning here becomes a comment that says why."""
    from polysweep.sweeps.commands.import_file import import_sweep

    import_sweep(file, out, settings or [], force=force)


@app.command()
def launch(
    spec: SpecArgument,
    store: StoreOption = DEFAULT_STORE,
    wandb: WandbOption = None,
    data_dir: DataOption = None,
    count: CountOption = None,
    address: AddressOption = None,
    insecure: InsecureOption = False,
    extend: Annotated[
        bool, typer.Option("--extend", help="Accept a spec that differs from the one launched under this name.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run the failed trials again, from their checkpoints.")
    ] = False,
    wandb_sweep: WandbSweepOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the output of Ray and W&B.")] = False,
) -> None:
    """Run every trial of a sweep that has not ended. Rerun the same command to resume after an interruption."""
    from polysweep.sweeps.commands.launch import start
    from polysweep.sweeps.commands.probe import asked_by, measure_at_the_end
    from polysweep.sweeps.job import LaunchOptions
    from polysweep.sweeps.spec.spec import SweepSpec
    from polysweep.trainer.wandb_runs import resolve_mode

    options = LaunchOptions(
        resolve_mode(wandb), data_dir, verbose, extend, retry_failed, address, insecure, wandb_sweep
    )
    sweep, place = SweepSpec.load(spec, count=count), _writable(store)
    asked = asked_by(sweep, data_dir)
    if address is None:
        raise typer.Exit(measure_at_the_end(start(sweep, place, options), sweep, place, asked, options))
    from polysweep.sweeps.cluster.access import check_launch
    from polysweep.sweeps.scheduling.ray_environment import prepare

    prepare(address, insecure)
    if address != "auto":
        check_launch(address, insecure)  # before Ray is imported, which takes seconds
    from polysweep.sweeps.cluster.connect import start_at

    raise typer.Exit(measure_at_the_end(start_at(address, sweep, place, options), sweep, place, asked, options))


@app.command()
def submit(
    spec: SpecArgument,
    address: Annotated[str, typer.Option("--address", help="The cluster's dashboard, http://HEAD:8265.")],
    store: StoreOption = DEFAULT_STORE,
    wandb: WandbOption = None,
    data_dir: DataOption = None,
    count: CountOption = None,
    requirements: Annotated[
        Path | None, typer.Option("--requirements", help="A file of packages that the nodes lack.")
    ] = None,
    insecure: InsecureOption = False,
    extend: Annotated[bool, typer.Option("--extend", help="As for launch.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="As for launch.")] = False,
    wandb_sweep: WandbSweepOption = False,
) -> None:
    """Launch a sweep as a Ray Job: its driver lives on the cluster, whatever becomes of this machine."""
    from polysweep.sweeps.cluster.submit import submit as submit_job
    from polysweep.sweeps.scheduling.ray_environment import prepare
    from polysweep.sweeps.spec.spec import SweepSpec

    sweep = SweepSpec.load(spec, count=count)
    switches = {"--extend": extend, "--retry-failed": retry_failed, "--wandb-sweep": wandb_sweep}
    flags = [flag for flag, is_set in switches.items() if is_set]
    prepare(address, insecure)
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
    from polysweep.sweeps.commands.printing import show_status
    from polysweep.sweeps.planning.status import status_of

    place = open_store(store)
    sweep = place.launched(name)
    records: dict[str, Mapping[str, Any]] = {}
    summary = status_of(sweep, place, records)
    if as_json:
        print(json.dumps(summary))
        return
    console = Console()
    while True:
        if watch and console.is_terminal:
            console.clear()
        show_status(name, summary, sweep.metric.note, console)
        counts = summary["counts"]
        left = counts["new"] + counts["interrupted"] + counts["running"] + summary["proposals_left"]
        left += bool(summary["decisions"] and summary["launches"])  # which may add trials
        if not watch or not left or (summary["over"] and not counts["running"]):
            return
        time.sleep(2.0)
        sweep = place.launched(name)
        summary = status_of(sweep, place, records)


@app.command()
def replicate(
    name: NameArgument,
    compare: CompareOption = None,
    looks: LooksOption = None,
    margin: MarginOption = None,
    level: Annotated[float | None, typer.Option("--level", help="Of any false decision. [default: 0.05]")] = None,
    max_trials: Annotated[int | None, typer.Option("--max-trials", help="Of the whole sweep.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="[default: the sweep's metric]")] = None,
    report_on: ReportOnOption = None,
    store: StoreOption = DEFAULT_STORE,
    wandb: WandbOption = None,
    data_dir: DataOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what the next look would start and cost.")] = False,
) -> None:
    """Add seeds to a launched sweep, look after look, until each comparison is decided or the last look is made."""
    from polysweep.sweeps.commands.replicate import replicate as replicate_sweep
    from polysweep.sweeps.job import LaunchOptions
    from polysweep.trainer.wandb_runs import resolve_mode

    asked = {"compare": compared_field(compare), "looks": whole_numbers("--looks", looks), "margin": margin}
    asked |= {"level": level, "max_trials": max_trials, "metric": metric}
    options, seeds = LaunchOptions(resolve_mode(wandb), data_dir, extend=True), whole_numbers("--report-on", report_on)
    raise typer.Exit(replicate_sweep(name, _writable(store), options, asked, seeds, is_dry=dry_run))


@app.command()
def stop(name: NameArgument, store: StoreOption = DEFAULT_STORE) -> None:
    """Stop every launch of a sweep cleanly: finished epochs are stored, and the next launch resumes from there."""
    from polysweep.sweeps.store.launches import stop as stop_launches

    place = _writable(store)
    place.require_sweep(name)
    raise typer.Exit(0 if stop_launches(place, name, say) else 1)


@app.command()
def logs(
    name: NameArgument,
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="A trial's id, or how it begins.")],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Print what is known of one trial: when and on which machines it ran, its epochs, notes, errors."""
    from polysweep.sweeps.commands.printing import matching_trial, trial_log

    place = open_store(store)
    trial_id = matching_trial(place.launched(name), trial)
    for line in trial_log(place, trial_id):
        say(line)


@app.command()
def sync(
    name: NameArgument,
    store: StoreOption = DEFAULT_STORE,
    again: Annotated[bool, typer.Option("--again", help="Try again what was deleted on the server.")] = False,
    wandb_sweep: WandbSweepOption = False,
) -> None:
    """Upload to the W&B server exactly what it lacks of a sweep: runs, rows of killed processes, tags."""
    from polysweep.sweeps.commands.launch import use_wandb_settings
    from polysweep.sweeps.tracking.sync import sync as sync_sweep
    from polysweep.sweeps.tracking.wandb_sweep import register

    place = _writable(store)
    sweep = place.launched(name)
    use_wandb_settings(sweep.settings.project, sweep.settings.entity)
    if wandb_sweep:
        register(sweep, place, say)
    trials = {trial.trial_id: trial.values for trial in sweep.trials}
    raise typer.Exit(sync_sweep(name, trials, place, say, again=again))


def _writable(root: str) -> Store:
    store = open_store(root)
    store.check_writable()
    return store
