"""What a report says first of a sweep, on the HTML page and on W&B alike: counts, cost, and what to beware of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from polysweep.analysis.data.frames import RunSet, to_python
from polysweep.analysis.figures.gallery import Published as Beside
from polysweep.analysis.published.cells import Published
from polysweep.analysis.published.comparison import Compared, NothingToCompareError, compare, published_of
from polysweep.analysis.tables.answers import Answer
from polysweep.analysis.tables.formats import edge_warnings
from polysweep.analysis.tables.mean_std import caption
from polysweep.analysis.tables.selection import Selection

MOST_POINTS: Final = 200
"""Points of a search in a report."""
MOST_TABLES: Final = 40
"""Tables with figures of their own; the numbers of all are in a report."""


@dataclass(frozen=True)
class Summary:
    """The first sentences of a report, and its notes."""

    counts: str  # `24 trials in 4 cells: 20 finished, 4 diverged.`
    cost: str
    gaps: tuple[str, ...]  # why a mean is not over all seeds
    notes: tuple[str, ...]  # each a warning of its own

    @classmethod
    def of(cls, selection: Selection) -> Summary:
        """From the runs and cells of a selection."""
        runs, cells = selection.pulled.runs, selection.cells
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in runs["outcome"].value_counts().items())
        incomplete = int((cells["n"] < cells["seeds"]).sum())
        undecided = int((cells["undecided"] != "").sum())
        gaps = [f"In {incomplete} of {len(cells)} cells not every seed has finished."] if incomplete else []
        if undecided:
            gaps.append(f"{undecided} cells are undecided: some of their runs have no result yet.")
        count = f"{len(runs)} trials in {len(cells)} cells"
        if selection.pulled.protocol.roles:
            added = int(runs["is_added"].sum())
            count += f", {len(runs) - added} of which tune and {added} report"
        return cls(f"{count}: {outcomes}.", cost(runs), tuple(gaps), _notes(selection))

    def text(self, selection: Selection, *more: str) -> str:
        """All of it as Markdown: a paragraph, then a list of the notes and of `more`, if not empty."""
        sentences = [f"{caption(selection)}.", *self.gaps, self.counts, f"{self.cost}."]
        notes = [f"- {note}" for note in (*self.notes, *more) if note]
        return "\n".join([" ".join(sentences), "", *notes]).rstrip()


def _notes(selection: Selection) -> tuple[str, ...]:
    runs, problem = selection.pulled.runs, selection.pulled.protocol.problem
    notes = [problem] if problem else []
    stalled = int(runs["stalled"].fillna(False).sum()) if "stalled" in runs else 0
    if stalled:
        notes.append(
            f"{stalled} finished trials are stalled: gamma = 0 held them in place to the end. "
            "Those of chosen candidates are in the means."
        )
    if selection.on_test:
        notes.append(
            "Selected on test: the test set chose the epoch or a tuned parameter. A held-out protocol is expected to "
            "score lower."
        )
    return (*notes, *edge_warnings(selection))


CLAIMS_TITLE: Final = "Claims made before the runs"
DECIDED_TITLE: Final = "Decided by replication"
EXPLORATORY: Final = "All other comparisons here were not claimed before the runs: they are exploratory."


def claims_text(pulled: RunSet) -> str:
    """When the claims were frozen, and that all else is exploratory; empty if the sweep made none."""
    registered = pulled.protocol.claims
    if registered is None:
        return ""
    seen = (
        f"; {registered.begun} of its trials had begun before, for another sweep or alone, and their results may have "
        "been known"
        if registered.begun
        else ""
    )
    return f"Frozen by the first launch, {registered.at} (hash {registered.hash}){seen}. {EXPLORATORY}"


def answer_rows(of_claims: Sequence[Answer]) -> list[list[str]]:
    """A header, and by claim its text, the verdict, and why."""
    return [["claim", "verdict", "why"], *([str(one.claim), one.verdict, one.why] for one in of_claims)]


def comparison_rows(answer: Answer) -> list[list[str]]:
    """A header, and the comparisons of one claim."""
    return [["cells", "difference", "95 % interval", "p of more", "p of less", "n"], *answer.rows()]


def beside_published(
    selection: Selection, published: Published | None, where: Mapping[str, str] | None
) -> tuple[Compared | None, Beside | None, str]:
    """The comparison with published numbers, what plots draw of them, and why there is neither if none fits."""
    if published is None:
        return None, None, ""
    try:
        compared = compare(selection.pulled, published, epoch=selection.epoch, where=where)
    except NothingToCompareError as error:
        return None, None, str(error)
    return compared, published_of(published, selection), ""


def cost(runs: pd.DataFrame) -> str:
    """`1.25 stack-hours on 1 thread each (1.25 core-hours)`: seconds of trials, those of one stack counted once."""
    seconds = [value or 0.0 for value in to_python(runs["seconds"])]
    widths = [value or 1 for value in to_python(runs["width"])] if "width" in runs else [1] * len(seconds)
    threads = [value or 1 for value in to_python(runs["threads"])] if "threads" in runs else [1] * len(seconds)
    stacks = sum(s / w for s, w in zip(seconds, widths, strict=True)) / 3600
    cores = sum(s / w * t for s, w, t in zip(seconds, widths, threads, strict=True)) / 3600
    devices = sorted({str(value) for value in to_python(runs["device"]) if value}) if "device" in runs else []
    where = f" on {', '.join(devices)}" if devices else ""
    return f"{stacks:.2f} stack-hours of training, {cores:.2f} core-hours{where}"
