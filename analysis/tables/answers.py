"""What the runs say of the claims that a spec made before its sweep was launched. Pure; docs/analysis.md: the rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.selection import Selection, format_value, number
from polysweep.analysis.tables.statistics import FAILS, HOLDS, NO_RUNS, NOT_SHOWN, UNDECIDED, holm
from polysweep.sweeps.planning.welch import LEVEL, Difference, p_text, untested
from polysweep.sweeps.spec.preregistration import Claim


@dataclass(frozen=True)
class Comparison:
    """Two cells that a claim compares."""

    where: str  # what both share: `rho=0.1`
    difference: Difference  # of their means, larger is better; its p values are of its being more, or less, than `by`


@dataclass(frozen=True)
class Answer:
    """A claim, what each of its comparisons came to, and the verdict at the level of 5 % for all claims together.

    `p` is Holm's over the claims. It holds if every difference is shown to be more than `by`: its p value is then the
    largest. It fails if one is shown to be less: the smallest, times their number.
    """

    claim: Claim
    metric: str
    comparisons: Sequence[Comparison]
    tested: Difference  # the comparison that decides, with the p values of the whole claim
    p: float = math.nan
    verdict: str = NOT_SHOWN

    @property
    def why(self) -> str:
        """`p = 0.0021, 4 comparisons, n = 5`; or why nothing could be tested."""
        if math.isnan(self.p):
            return "" if self.tested.reason == self.verdict else self.tested.reason
        count = "1 comparison" if len(self.comparisons) == 1 else f"{len(self.comparisons)} comparisons"
        return f"{p_text(self.p)}, {count}, n = {self.tested.n}"

    def rows(self) -> list[list[str]]:
        """By comparison where it is, the difference, its 95 % interval, the p values of more and of less, and n."""
        return [[one.where or "all", *_numbers(one.difference, self.metric)] for one in self.comparisons]


def answers(pulled: RunSet) -> list[Answer]:
    """The answer to each claim, in the order of the spec; none if it made no claims.

    Cells are those of `select` by the sweep's own metric at the best epoch, whatever else is asked for.
    """
    registered = pulled.protocol.claims
    if registered is None:
        return []
    selections = {metric: select(pulled, metric=metric) for metric in {claim.metric for claim in registered.claims}}
    tested = [_tested(claim, selections[claim.metric]) for claim in registered.claims]
    # One that cannot be tested yet counts, or another one's verdict would change once it can.
    adjusted = holm([1.0 if math.isnan(answer.tested.p) else answer.tested.p for answer in tested])
    return [_judged(answer, p) for answer, p in zip(tested, adjusted, strict=True)]


def _judged(answer: Answer, p: float) -> Answer:
    if math.isnan(answer.tested.p):
        reason = answer.tested.reason
        return replace(answer, verdict=reason if reason in (UNDECIDED, NO_RUNS) else NOT_SHOWN)
    return replace(answer, p=p, verdict=NOT_SHOWN if not p < LEVEL else HOLDS if answer.tested.is_above else FAILS)


def _tested(claim: Claim, selection: Selection) -> Answer:
    cells = selection.cells.to_dict("records")
    fields = [{n: cell[n] for n in selection.pulled.protocol.cell if format_value(cell[n]) != "-"} for cell in cells]
    pairs = [(cells[a], cells[b], _shared(fields[a], fields[b], claim)) for a, b in claim.pairs(fields)]
    comparisons = [
        Comparison(where, selection.difference([better], [than], by=claim.by.value)) for better, than, where in pairs
    ]
    if not pairs or not any(cell["n"] or cell["lost"] for better, than, _ in pairs for cell in (better, than)):
        comparisons, tested = [], untested(NO_RUNS)
    elif any(cell["undecided"] for better, than, _ in pairs for cell in (better, than)):
        tested = untested(UNDECIDED, n=min(one.difference.n for one in comparisons))
    else:
        tested = _together([one.difference for one in comparisons])
    return Answer(claim, selection.metric, comparisons, tested)


def _together(differences: Sequence[Difference]) -> Difference:
    """The comparison that decides, with the p values of all of them being above, and of one of them being below.

    One that cannot be tested shows neither.
    """
    tested = [one for one in differences if not math.isnan(one.p_above)]
    if not tested:
        return differences[0]
    weakest, worst = max(tested, key=lambda one: one.p_above), min(tested, key=lambda one: one.p_below)
    above = weakest.p_above if len(tested) == len(differences) else 1.0
    below = min(1.0, len(differences) * worst.p_below)
    decides = worst if below < above else weakest
    return decides._replace(p_above=above, p_below=below, n=min(one.n for one in differences))


def _shared(better: Mapping[str, Any], than: Mapping[str, Any], claim: Claim) -> str:
    """What tells this comparison of a claim from its others."""
    values = {**than, **better}
    return " ".join(f"{name}={value}" for name, value in values.items() if name not in claim.better)


def _numbers(one: Difference, metric: str) -> list[str]:
    if math.isnan(one.p_above):
        return ["-" if math.isnan(one.estimate) else number(one.estimate, metric), "-", "-", "-", one.reason]
    interval = "-" if math.isnan(one.low) else " to ".join(number(end, metric) for end in (one.low, one.high))
    estimate = "-" if math.isnan(one.estimate) else number(one.estimate, metric)
    return [estimate, interval, f"{one.p_above:.2g}", f"{one.p_below:.2g}", str(one.n)]
