"""The commands of the analysis: pull, table, plot, compare, report, theory, dashboard."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polysweep.analysis.command_options import (
    DEFAULT_CACHE,
    AllOption,
    ByOption,
    CacheOption,
    EpochOption,
    MetricOption,
    OnlyOption,
    PublishedOption,
    SeedsOption,
    SourceArgument,
    WhereOption,
    WidthOption,
    parse_where,
    split_fields,
)
from polysweep.sweeps.commands.options import DEFAULT_STORE, StoreOption, open_store
from polysweep.sweeps.console import bar, say, warn
from polysweep.trainer.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polysweep.analysis.data.frames import RunSet
    from polysweep.analysis.published.cells import Published
    from polysweep.analysis.tables.selection import Selection

app = typer.Typer()


@app.command()
def pull(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="wandb://ENTITY/PROJECT, or .../TAG")],
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = DEFAULT_CACHE,
    filter_: Annotated[str | None, typer.Option("--filter", help="W&B's own, a JSON object.")] = None,
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec", help="The sweep's file. By default that of the sweep named like TAG, if the Store has it."
        ),
    ] = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", help="OURS=THEIRS, such as rho=optimizer.radius; may be repeated.")
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="What selects. [default: test/top1]")] = None,
    goal: Annotated[str | None, typer.Option("--goal", help="maximize or minimize.")] = None,
    tuned: Annotated[str | None, typer.Option("--tuned", help="Config fields chosen per cell: lr,lr_min")] = None,
    ignore: Annotated[
        str | None, typer.Option("--ignore", help="Config fields that tell no cells apart: output_dir")
    ] = None,
) -> None:
    """Fetch runs and histories from W&B: what is new or has changed. `table` and the others then work on them.

    What is not given is as at the last pull of the address.
    """
    from polysweep.analysis.data.address import Address, parse_filter, parse_mapping
    from polysweep.analysis.data.frames import counts
    from polysweep.analysis.data.pulling import pull as pull_runs

    Address.parse(address)
    filters = parse_filter(filter_) if filter_ is not None else None
    names = parse_mapping(mapping) if mapping else None
    with bar("histories") as progress:
        pulled = pull_runs(
            address, store=store, cache=cache, spec=spec, filters=filters, mapping=names, metric=metric, goal=goal,
            tuned=split_fields(tuned), ignore=split_fields(ignore), progress=progress,
        )  # fmt: skip
    protocol = pulled.protocol
    say(f"{address}: {len(pulled.runs)} runs: {counts(pulled)}; {int(pulled.runs['run.rows'].sum())} history rows")
    say(
        f"cells: {', '.join(protocol.cell) or 'one'}; tuned: {', '.join(protocol.tuned) or 'nothing'}; "
        f"selected by {protocol.metric} ({protocol.goal})"
        + (f"; as the sweep {protocol.name}" if protocol.text else "")
    )
    say(f"polysweep table {address} shows them")


@app.command()
def table(
    name: SourceArgument,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = DEFAULT_CACHE,
    metric: MetricOption = None,
    epoch: EpochOption = None,
    select_by: ByOption = None,
    rows: Annotated[str | None, typer.Option("--rows", help="Fields that go down. [default: rho]")] = None,
    cols: Annotated[str | None, typer.Option("--cols", help="Fields that go across. [default: scheduler]")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Fields of one table each. [default: all others]")] = None,
    only: OnlyOption = None,
    intervals: Annotated[bool, typer.Option("--intervals", help="Show Student's 95 % interval of each mean.")] = False,
    format_: Annotated[str, typer.Option("--format", help="markdown, latex, csv or html.")] = "markdown",
    all_: AllOption = False,
) -> None:
    """Print mean +- std tables: n if a cell is not complete, what was chosen from how many runs, what is shown.

    Of a random or bayes search without tuned parameters: a leaderboard of its points, and which parameters mattered.
    """
    from polysweep.analysis.tables.formats import edge_warnings, render
    from polysweep.analysis.tables.layout import Layout

    selection = _only(_select(name, store, cache, metric, epoch, select_by), only)
    fields = [split_fields(rows), split_fields(cols), split_fields(by)]
    layout = Layout.of(selection, *fields) if any(fields) else None
    text = render(selection, format_, layout, intervals=intervals, all_points=all_)
    for warning in edge_warnings(selection):
        warn(warning)
    say(text)


@app.command()
def plot(
    name: SourceArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder for the plots.")],
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = DEFAULT_CACHE,
    metric: MetricOption = None,
    epoch: EpochOption = None,
    select_by: ByOption = None,
    kinds: Annotated[str, typer.Option("--kinds", help="Of png, svg, pdf.")] = "png,svg",
    width: WidthOption = "page",
    cols: Annotated[
        str | None, typer.Option("--cols", help="Fields whose values name the lines. [default: scheduler]")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Fields of one figure each. [default: all others]")] = None,
    only: OnlyOption = None,
    published: PublishedOption = None,
    published_seeds: SeedsOption = 3,
) -> None:
    """Draw optimizers side by side, robustness, stability, heat maps, curves and step sizes, each with its CSV."""
    from polysweep.analysis.figures.gallery import save_all
    from polysweep.analysis.published.comparison import published_of
    from polysweep.analysis.tables.formats import edge_warnings

    theirs = _published(published, published_seeds)
    selection = _only(_select(name, store, cache, metric, epoch, select_by), only)
    beside = None if theirs is None else published_of(theirs, selection)
    paths = save_all(
        selection, out, kinds=split_fields(kinds) or (), width=width, published=beside, cols=split_fields(cols),
        by=split_fields(by),
    )  # fmt: skip
    for warning in edge_warnings(selection):
        warn(warning)
    for path in paths:
        say(path)


@app.command()
def compare(
    name: SourceArgument,
    published: Annotated[str, typer.Option("--published", help="cifar, or a CSV file of the same columns.")],
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = DEFAULT_CACHE,
    epoch: EpochOption = None,
    where: WhereOption = None,
    published_seeds: SeedsOption = 3,
    format_: Annotated[str, typer.Option("--format", help="markdown, csv or html.")] = "markdown",
) -> None:
    """Put every published cell beside ours, and say of each published claim whether it holds."""
    from polysweep.analysis.published.comparison import compare as compare_cells
    from polysweep.analysis.published.formats import render_compared

    theirs = _published(published, published_seeds)
    assert theirs is not None
    comparison = compare_cells(_pulled(name, store, cache), theirs, epoch=epoch, where=parse_where(where or []))
    say(render_compared(comparison, format_))


@app.command()
def report(
    name: SourceArgument,
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file to write.")] = None,
    wandb: Annotated[
        bool, typer.Option("--wandb", help="Publish a W&B Report in the project of the runs, or bring it up to date.")
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = DEFAULT_CACHE,
    metric: MetricOption = None,
    epoch: EpochOption = None,
    select_by: ByOption = None,
    published: PublishedOption = None,
    published_seeds: SeedsOption = 3,
    where: WhereOption = None,
) -> None:
    """Write one self-contained HTML page: verdicts, tables, plots, selection, failures, spec, provenance.

    With --wandb also, or instead, a W&B Report: tables as text, runs and panels live, plots as images of a run.
    """
    if out is None and not wandb:
        raise UserError("report: neither --out FILE nor --wandb is given; expected one of them, or both")
    theirs, wheres = _published(published, published_seeds), parse_where(where or [])
    selection = _select(name, store, cache, metric, epoch, select_by)
    if out is not None:
        from polysweep.analysis.report.html import write_report

        write_report(selection, out, theirs, wheres)
        say(out)
    if wandb:
        from polysweep.analysis.report.wandb_report import publish_report

        _say_published(*publish_report(selection, theirs, wheres))


@app.command()
def theory(
    name: SourceArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder for the figures and their data.")],
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = DEFAULT_CACHE,
    kinds: Annotated[str, typer.Option("--kinds", help="Of png, svg, pdf.")] = "png,svg",
    width: WidthOption = "page",
) -> None:
    """Put a sweep of convex problems beside the paper's bounds: figures, contraction factors, violations, winner."""
    from polysweep.analysis.figures.files import require_kinds, write
    from polysweep.analysis.tables.spreadsheet import to_csv
    from polysweep.analysis.theory.checks import checks, methods
    from polysweep.analysis.theory.figures import theory_figures
    from polysweep.analysis.theory.lines import lines_of
    from polysweep.analysis.theory.text import render_theory

    wanted = split_fields(kinds) or ()
    require_kinds(wanted)
    selection = _select(name, store, cache, None, "last", None)
    lines = lines_of(selection)
    title = selection.pulled.protocol.name
    paths = write(theory_figures(lines, title, width), out, wanted)
    try:
        for file, frame in (("methods", methods(lines)), ("checks", checks(lines))):
            (out / f"{file}.csv").write_text(to_csv(frame), encoding="utf-8")
            paths.append(out / f"{file}.csv")
    except OSError as error:
        raise UserError(f"--out: {out} cannot be written: {error}") from None
    say(render_theory(lines, title))
    say("\n".join(map(str, paths)), sys.stderr)


@app.command()
def dashboard(
    name: SourceArgument,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = DEFAULT_CACHE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the definition as JSON; ask no server.")] = False,
) -> None:
    """Create a W&B workspace view of a sweep, or bring it up to date. The same sweep is always the same view."""
    from polysweep.analysis.report.wandb_dashboard import definition, save, workspace
    from polysweep.analysis.report.wandb_panels import place_of

    pulled = _pulled(name, store, cache)
    if dry_run:
        entity, project = place_of(pulled)
        print(json.dumps(definition(workspace(pulled, entity or "", project)), indent=1))
        return
    _say_published(*save(pulled))


def _say_published(address: str, is_new: bool) -> None:
    say(f"{'created' if is_new else 'updated'} {address}")


def _pulled(name: str, store: str, cache: str) -> RunSet:
    from polysweep.analysis.data.pulling import pull as pull_runs

    pulled = pull_runs(name, store=open_store(store), cache=cache, refresh=False)
    if pulled.protocol.problem:
        warn(pulled.protocol.problem)
    runs = pulled.runs
    if {"error", "width"} <= set(runs.columns):  # of a Store; a trial without K is one whose files cannot be read
        damaged = runs[(runs["outcome"] == "failed") & runs["width"].isna() & runs["error"].notna()]
        for trial_id, why in zip(damaged["trial_id"], damaged["error"], strict=True):
            warn(f"{trial_id} counts as failed: {why}")
    return pulled


def _select(name: str, store: str, cache: str, metric: str | None, epoch: str | None, by: str | None) -> Selection:
    from polysweep.analysis.tables.choice import select

    return select(_pulled(name, store, cache), metric=metric, epoch=epoch, by=by)


def _only(selection: Selection, texts: Sequence[str] | None) -> Selection:
    from polysweep.analysis.tables.subset import only, parse_only

    return only(selection, parse_only(texts)) if texts else selection


def _published(name: str | None, seeds: int) -> Published | None:
    from polysweep.analysis.published.cells import load_published

    return None if name is None else load_published(name, seeds)
