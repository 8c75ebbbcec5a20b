"""A W&B Report of a sweep, through `wandb-workspaces`: tables as Markdown, runs and panels live, plots as images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.epochs import require_history
from polysweep.analysis.figures.files import image
from polysweep.analysis.figures.gallery import Published as Beside
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.published.cells import Published
from polysweep.analysis.published.comparison import Compared
from polysweep.analysis.published.formats import render_compared
from polysweep.analysis.report.summary import (
    CLAIMS_TITLE,
    DECIDED_TITLE,
    MOST_POINTS,
    MOST_TABLES,
    Summary,
    answer_rows,
    beside_published,
    claims_text,
    comparison_rows,
)
from polysweep.analysis.report.wandb_panels import (
    TITLE,
    Panels,
    filters_of,
    fixed_id,
    library,
    place_of,
    source_of,
    summary_id,
    tag_of,
)
from polysweep.analysis.tables.answers import answers
from polysweep.analysis.tables.formats import decision_table, tables_of
from polysweep.analysis.tables.layout import Layout
from polysweep.analysis.tables.leaderboard_table import search_table
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.severity import severity_tables
from polysweep.analysis.tables.writers import Table, markdown, markdown_page
from polysweep.sweeps.tracking.summary_run import JOB_TYPE, Plot, send_plots
from polysweep.sweeps.tracking.wandb_server import TIMEOUT_SECONDS, open_api, require_runs
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import first_line
from polysweep.trainer.wandb_client import Run
from polysweep.trainer.wandb_runs import logged_in

PLACE: Final = "report --wandb: "
COLUMNS: Final = 24
"""Of the grid on which a report's panels stand."""
PLOT_ROWS: Final = 12
PLOTS: Final = "plots/"
"""How the keys of the images begin."""
LONGEST_TITLE: Final = 128


def publish_report(
    selection: Selection, published: Published | None = None, where: Mapping[str, str] | None = None
) -> tuple[str, bool]:
    """Create the report of a sweep beside its runs, or bring it up to date; its address, and whether it is new.

    The plots are images of a run of the same project, whose id begins with `polysweep-report-`. `published` and
    `where` as of `write_report`.

    Raises `UserError` without a key, if the server cannot be used, for an unknown project, for one that has no run
    of the sweep, and if nothing has been trained yet.
    """
    require_history(selection)
    if not logged_in():
        raise UserError(f"{PLACE}no W&B key; set WANDB_API_KEY, or run `wandb login`")
    protocol = selection.pulled.protocol
    entity, project = place_of(selection.pulled)
    api, entity = open_api(TIMEOUT_SECONDS, entity, PLACE)
    place = f"{entity}/{project}"
    require_runs(api, place, tag_of(protocol), PLACE)
    compared, beside, without = beside_published(selection, published, where)
    plots, first_id = _plots(selection, beside), summary_id(protocol.name)
    run = Run(first_id, f"{TITLE} report: {protocol.name}", "", JOB_TYPE, (), {}, (entity, project))
    report, is_new = _report(api, place, first_id)
    try:
        run_id = send_plots(run, plots)
    except UserError as error:
        raise UserError(f"{PLACE}{place}: {error}") from None
    live = Live(selection.pulled, entity, project)
    report.title = f"{TITLE}: {protocol.name}"[:LONGEST_TITLE]
    report.description = (
        f"`polysweep report {source_of(protocol)} --wandb` brings it up to date; its plots are of the run {first_id}."
    )
    try:
        report.blocks = [
            library().TableOfContents(),
            *_headed(markdown_parts(selection, compared, without)),
            *live.plots(run_id, plots),
            *live.sections(),
            *_spec(protocol.text),
        ]
        report.save()
    except Exception as error:
        raise UserError(f"{PLACE}{place}: the report cannot be saved: {first_line(error)}") from None
    return str(report.url), is_new


def markdown_parts(selection: Selection, compared: Compared | None = None, without: str = "") -> dict[str, list[str]]:
    """By heading the texts of the report, each a block: what the HTML page says first, the tables as of `table`.

    `without` is why there is no comparison.
    """
    parts = {**_claims(selection.pulled), **_decided(selection)}
    parts["Summary"] = [Summary.of(selection).text(selection, without)]
    if compared is not None:
        parts["Published numbers beside ours"] = [render_compared(compared, "markdown")]
    if selection.pulled.protocol.is_search:
        return {**parts, "Leaderboard": [markdown_page(search_table(selection, MOST_POINTS))]}
    parts["Tables"] = [markdown_page(table) for table in tables_of(selection, Layout.of_tables(selection))]
    corrupted = [markdown_page(table) for table in severity_tables(selection)]
    return {**parts, "Corrupted test images": corrupted} if corrupted else parts


def _claims(pulled: RunSet) -> dict[str, list[str]]:
    """The claims that the sweep made, answered."""
    of_claims = answers(pulled)
    if not of_claims:
        return {}
    header, *rows = answer_rows(of_claims)
    details = [
        markdown(Table(header, rows, name=str(one.claim), caption="by cell"))
        for one in of_claims
        for header, *rows in [comparison_rows(one)]
        if rows
    ]
    return {CLAIMS_TITLE: [claims_text(pulled), markdown(Table(header, rows)), *details]}


def _decided(selection: Selection) -> dict[str, list[str]]:
    """What a replication has decided."""
    tables = [markdown_page(table) for table in decision_table(selection)]
    return {DECIDED_TITLE: tables} if tables else {}


class Live:
    """The blocks of a report that W&B draws itself, from the runs of a project."""

    def __init__(self, pulled: RunSet, entity: str, project: str) -> None:
        self._wr = library()
        self._pulled = pulled
        self._entity, self._project = entity, project

    def sections(self) -> list[Any]:
        """The panels of the workspace view, each section over the sweep's runs."""
        panels, filters = Panels(self._pulled), filters_of(self._pulled.protocol)
        groups = ["Group"] if panels.has_groups else [f"config.{path}" for path in panels.fields]
        return [
            block
            for title, some in panels.sections().items()
            for block in (self._wr.H2(title), self._grid(self._pulled.protocol.name, filters, some, groups))
        ]

    def plots(self, run_id: str, plots: Sequence[Plot]) -> list[Any]:
        """The images of the run that has them, one below the other, each as wide as the page."""
        from wandb_workspaces import expr

        wr = self._wr
        panels = [
            wr.MediaBrowser(
                title=plot.key.removeprefix(PLOTS),
                media_keys=[plot.key],
                num_columns=1,
                layout=wr.Layout(0, at * PLOT_ROWS, COLUMNS, PLOT_ROWS),
            )
            for at, plot in enumerate(plots)
        ]
        for at, panel in enumerate(panels):
            panel._id = f"plot{at}"  # the client would draw one at random
        grid = self._grid("plots", expr.And(expr.Metric("ID").isin([run_id])), panels, hide_run_sets=True)
        return [wr.H2("Plots"), grid]

    def _grid(self, name: str, filters: Any, panels: list[Any], groups: Sequence[str] = (), **options: Any) -> Any:
        runs = self._wr.Runset(
            entity=self._entity, project=self._project, name=name, filters=filters, groupby=list(groups)
        )
        runs._id = fixed_id(name, self._pulled.protocol.name)  # else all that are made in one process have the same
        return self._wr.PanelGrid(runsets=[runs], panels=panels, **options)


def _headed(parts: Mapping[str, Sequence[str]]) -> list[Any]:
    wr = library()
    return [
        block for title, texts in parts.items() for block in (wr.H2(title), *(wr.MarkdownBlock(text) for text in texts))
    ]


def _spec(text: str) -> list[Any]:
    wr = library()
    return [wr.H2("Spec"), wr.CodeBlock(text, language="yaml")] if text else []


def _plots(selection: Selection, beside: Beside | None) -> list[Plot]:
    drawn = figures(selection, width="screen", published=beside, tables=MOST_TABLES)
    return [Plot(f"{PLOTS}{one.name}", image(one.figure, "png"), one.caption) for one in drawn]


def _report(api: Any, place: str, run_id: str) -> tuple[Any, bool]:
    """The report that shows the plots of a run, the oldest of several as copies are younger; else a new one."""
    wr, (entity, project) = library(), place.split("/")
    try:
        kept = [one for one in api.reports(place) if run_id in f"{one.description} {one.spec}"]
        if kept:
            return wr.Report.from_url(min(kept, key=lambda one: str(one.created_at)).url), False
    except Exception as error:
        raise UserError(f"{PLACE}the W&B server does not list the reports of {place}: {first_line(error)}") from None
    return wr.Report(entity=entity, project=project), True
