"""What a sweep's results have decided, in words: for plan, launch and status."""

from __future__ import annotations

from collections.abc import Sequence

from polysweep.sweeps.spec.decisions import BETTER, OPEN, WORSE, Compared, Decisions, Look, cell_key
from polysweep.sweeps.spec.protocol import Protocol, Replication, metric_reported
from polysweep.sweeps.spec.sweep import Settings, SweepTrial, by_cell
from polysweep.trainer.history import is_accuracy, shown_number


def decision_lines(settings: Settings, decisions: Decisions, trials: Sequence[SweepTrial]) -> list[str]:
    """What has been decided: cells with a choice, and every comparison with the look that decided it."""
    lines = []
    protocol = None if settings.protocol is None else Protocol.model_validate(settings.protocol)
    if protocol is not None:
        cells = [cell_key(members) for members in by_cell(trials)]
        chosen = len(decisions.choices.keys() & set(cells))
        lines.append(f"protocol: {protocol}; {chosen} of {len(cells)} cells have chosen")
    if settings.replicate is not None:
        replication = Replication.model_validate(settings.replicate)
        metric = replication.metric or metric_reported(settings.metric.name, protocol)
        if decisions.begun:
            lines.append(f"replicate: {begun_text(decisions.begun)}")
        lines += [look_line(look, replication) for look in decisions.looks]
        lines += [
            f"  {compared_text(one, replication.field, metric)}"
            for look in decisions.looks
            for one in look.compared
            if one.verdict != OPEN or look is decisions.looks[-1]
        ]
    return lines


def begun_text(begun: int) -> str:
    """What the level does not hold for: what was compared may have been picked by results."""
    return (
        f"{begun} of the trials that are compared had begun before it was asked for; the level holds if their results "
        "did not choose what is compared"
    )


def look_line(look: Look, replication: Replication) -> str:
    """`look 2 of 4, 5 seeds, each test at 0.002: open comparisons: 3 of 4`."""
    left = sum(one.verdict == OPEN for one in look.compared)
    count = f"open comparisons: {left} of {look.comparisons}" if left else "every comparison is decided"
    return f"look {look.number} of {len(replication.looks)}, {look.seeds} seeds, each test at {look.bound:.2g}: {count}"


def compared_text(one: Compared, field: str, metric: str) -> str:
    """`rho=0.1: scheduler polyak better than constant by 0.31 points [0.12, 0.50], n = 5`."""
    where, sides = f"{one.where}: " if one.where else "", f"{one.better} and {one.than}: {one.verdict}"
    if one.verdict in (BETTER, WORSE):
        sides = f"{one.better} {one.verdict} than {one.than}"
    if one.estimate is None:
        gap = f", diverged {one.diverged[0]} and {one.diverged[1]}"
    else:
        gap = (" by " if one.verdict in (BETTER, WORSE) else ", difference ") + gap_text(one.estimate, one, metric)
    return f"{where}{field} {sides}{gap}, n = {one.n}"


def gap_text(estimate: float, one: Compared, metric: str) -> str:
    """`0.31 points [0.12, 0.50]`."""
    text = f"{amount_text(estimate, metric)}{' points' if is_accuracy(metric) else ''}"
    if one.low is None or one.high is None:
        return text
    return f"{text} [{amount_text(one.low, metric)}, {amount_text(one.high, metric)}]"


def amount_text(value: float, metric: str) -> str:
    """A difference: of an accuracy in points, else as it is."""
    text = f"{100 * value:.2f}" if is_accuracy(metric) else shown_number(value)
    return "0.00" if text == "-0.00" else text
