"""The document: sections of text, tables and figures, made from the runs of all sweeps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from polysweep.analysis.data.frames import RunSet, counts
from polysweep.analysis.figures.curvature_plots import curvature_figure
from polysweep.analysis.figures.files import NamedFigure
from polysweep.analysis.figures.gallery import WIDTHS
from polysweep.analysis.figures.lines import line_names
from polysweep.analysis.figures.noise_plots import noise_figures
from polysweep.analysis.figures.severity_plots import severity_figures
from polysweep.analysis.figures.styles import looks_of, one_at_a_time
from polysweep.analysis.paper.advantage import Row, advantage_table, advantages, tally
from polysweep.analysis.paper.beside import as_published, claim_summary, overview, published_tables
from polysweep.analysis.paper.parts import CIFAR, FAMILY, NOISE, PARTS, PERCEPTRON, THEORY, Part
from polysweep.analysis.published.cells import load_published
from polysweep.analysis.published.comparison import compare
from polysweep.analysis.published.formats import headline
from polysweep.analysis.report.html import provenance
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.curvature import curvature_table
from polysweep.analysis.tables.formats import tables_of
from polysweep.analysis.tables.layout import Layout
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.severity import severity_tables
from polysweep.analysis.tables.subset import only
from polysweep.analysis.tables.writers import Table
from polysweep.analysis.theory.checks import checks, methods, verdicts
from polysweep.analysis.theory.figures import theory_figures
from polysweep.analysis.theory.lines import lines_of
from polysweep.analysis.theory.text import checks_table, legend_of, methods_table

Block = str | Sequence[str] | Table | NamedFigure
"""A paragraph, a list, a table or a figure."""
FLAT: Final = ("curvature/eigenvalue-1", "curvature/trace", "curvature/sam-0.05")
"""By which measures a minimum is called flat."""
TEXTS: Final = yaml.safe_load((Path(__file__).parent / "texts.yaml").read_text())
"""The prose."""


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """The whole: `summary` comes first."""

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]

    @property
    def tables(self) -> int:
        """How many tables there are."""
        return sum(isinstance(block, Table) for section in self.sections for block in section.blocks)

    @property
    def figures(self) -> int:
        """How many figures there are."""
        return sum(isinstance(block, NamedFigure) for section in self.sections for block in section.blocks)


def document_of(pulled: Mapping[str, RunSet], *, is_rehearsal: bool, spent: Mapping[str, float]) -> Document:
    """The document of the runs of every part, by its name; `spent` are hours of a device by its model."""
    if is_rehearsal:
        pulled = {**pulled, CIFAR.name: as_published(pulled[CIFAR.name])}
    cifar, flatness = pulled[CIFAR.name], _flatness(pulled)
    compared = compare(cifar, load_published("cifar"))
    results = Section(
        "Published numbers beside ours",
        [*headline(compared), claim_summary(compared), *overview(compared), *published_tables(compared)],
    )
    sections = [
        results,
        *(_theory(part, pulled[part.name]) for part in THEORY),
        _curvature(select(cifar), flatness),
        _noise(pulled[NOISE.name], select(cifar)),
        _family(pulled[FAMILY.name]),
        Section(
            "Discrepancies found in the paper's text",
            [[f"{one['place']}: {one['finding']}" for one in TEXTS["discrepancies"]]],
        ),
        _protocol(pulled, is_rehearsal=is_rehearsal),
        _budget(pulled, spent),
    ]
    summary = [TEXTS["rehearsal"]] if is_rehearsal else []
    summary.append(f"Published cells with runs: {compared.with_runs} of {len(compared.cells)}.")
    summary += [f"Polyak steps find flatter minima, {name}: {tally(rows)}." for name, rows in flatness.items()]
    title = "Adaptive step sizes for sharpness-aware minimization: all experiments" + (
        " (rehearsal)" if is_rehearsal else ""
    )
    return Document(title, summary, sections)


def _flatness(pulled: Mapping[str, RunSet]) -> dict[str, list[Row]]:
    """By sweep whether Polyak's minima are the flattest, row by row."""
    sweeps = {"CIFAR tables": CIFAR, "noisy labels": NOISE, "SAM family": FAMILY}
    return {
        name: advantages(pulled[part.name], [one for one in FLAT if one in pulled[part.name].protocol.probed])
        for name, part in sweeps.items()
    }


def _theory(part: Part, pulled: RunSet) -> Section:
    lines = lines_of(select(pulled, epoch="last"))
    stated = checks(lines)
    blocks: list[Block] = [*theory_figures(lines, pulled.protocol.name, "page")]
    for problem, rows in methods(lines).groupby("problem", sort=False):
        blocks.append(_named(methods_table(rows), str(problem)))
    if len(stated):
        for problem, rows in stated.groupby("problem", sort=False):
            blocks.append(_named(checks_table(rows), f"{problem}: the paper's statements"))
        blocks.append(legend_of(stated))
    return Section(part.title, [*blocks, verdicts(lines)])


def _named(table: Table, name: str) -> Table:
    return Table(table.header, table.rows, 1, name, {}, "by method", table.notes)


def _curvature(selection: Selection, flatness: Mapping[str, Sequence[Row]]) -> Section:
    blocks: list[Block] = [
        TEXTS["curvature"],
        *_figures(curvature_figure(selection, WIDTHS["page"])),
        *_tables(curvature_table(selection)),
    ]
    blocks += [advantage_table(rows, f"Flatter minima, {name}") for name, rows in flatness.items() if rows]
    return Section("Why SAM: curvature", blocks)


def _noise(noisy: RunSet, clean: Selection) -> Section:
    selection, shown = select(noisy), only(clean, {"rho": 0.1, "weight_decay": 5e-4})
    layout, looks = Layout.of(selection, rows="label_noise"), looks_of(line_names(clean.cells, ("scheduler",)))
    blocks: list[Block] = [
        TEXTS["noise"],
        *one_at_a_time(noise_figures(selection, Layout.of(selection), WIDTHS["page"], looks)),
        *tables_of(selection, layout),
        *tables_of(select(noisy, metric="test/ece"), layout, verdicts=False),
        advantage_table(advantages(noisy, ["test/top1", "test/ece"]), "Better under noisy labels"),
        TEXTS["corruptions"],
        *one_at_a_time(severity_figures(shown, Layout.of(shown), WIDTHS["page"], looks)),
        *severity_tables(shown),
    ]
    return Section("What SAM is for: noisy labels and corrupted images", blocks)


def _family(pulled: RunSet) -> Section:
    blocks: list[Block] = [TEXTS["family"]]
    for metric in ("test/top1", "test/ece", FLAT[0]):
        if metric in pulled.logged:
            selection = select(pulled, metric=metric)
            blocks += tables_of(
                selection, Layout.of(selection, rows=("optimizer", "rho")), verdicts=metric == "test/top1"
            )
    return Section("The SAM family", blocks)


def _figures(figure: NamedFigure | None) -> Iterator[NamedFigure]:
    return one_at_a_time(iter([figure] if figure else []))


def _tables(table: Table | None) -> list[Table]:
    return [table] if table else []


def _protocol(pulled: Mapping[str, RunSet], *, is_rehearsal: bool) -> Section:
    rows = []
    for part in PARTS:
        runs, rule = pulled[part.name].runs, pulled[part.name].protocol
        cells = len(select(pulled[part.name]).cells)
        seeds = runs["seed"].nunique()
        epochs = ", ".join(f"{int(n)}" for n in sorted(runs["epochs"].dropna().unique()))
        rows.append(
            [
                rule.name,
                part.title,
                str(len(runs)),
                str(cells),
                str(seeds),
                epochs,
                f"{rule.metric} ({rule.goal})",
                ", ".join(rule.tuned) or "nothing",
            ]
        )
    header = ["sweep", "what", "trials", "cells", "seeds", "epochs", "chosen by", "tuned"]
    texts = [TEXTS["protocol"]]
    if is_rehearsal:
        small = ", ".join(f"{name} {entry['value']}" for name, entry in PERCEPTRON.items())
        texts.append(f"In place of the paper's: {small}.")
    return Section("Protocol", [*texts, Table(header, rows, 1, "Sweeps", {}, "protocol")])


def _budget(pulled: Mapping[str, RunSet], spent: Mapping[str, float]) -> Section:
    rows = [[runs.protocol.name, counts(runs)] for runs in pulled.values()]
    hours = [[device, f"{value:.2f}"] for device, value in spent.items()]
    environment = [
        [runs.protocol.name, name, "; ".join(f"{value} ({count})" for value, count in values)]
        for runs in pulled.values()
        for name, values in provenance(runs.runs)
        if values
    ]
    return Section(
        "Budget and environment",
        [
            Table(["sweep", "trials"], rows, 1, "Trials by outcome", {}, "outcomes"),
            Table(
                ["device", "hours"],
                hours,
                1,
                "Hours of stacks, training and measuring, by device",
                {},
                "hours of a core, or of a GPU",
            ),
            Table(
                ["sweep", "what", "values (trials)"], environment, 2, "Environment", {}, "as recorded with each trial"
            ),
        ],
    )
