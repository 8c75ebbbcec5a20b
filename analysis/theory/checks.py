"""A sweep of convex problems beside the paper's theorems: methods, statements, and what does not hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from polysweep.analysis.tables.selection import CAPPED
from polysweep.analysis.tables.statistics import holm
from polysweep.analysis.theory.curves import FAILS, FINAL, HIT, PUBLISHED, MethodCurve
from polysweep.sweeps.planning.welch import LEVEL, Difference, difference, fewer_is_better, p_text
from polysweep.trainer.convex import bounds
from polysweep.trainer.convex.guarantees import decreasing_step, radius_and_step
from polysweep.trainer.history import HITS

VIOLATIONS: Final = ("gamma", "descent", "lemmas")


def methods(lines: Sequence[MethodCurve]) -> pd.DataFrame:
    """One row per line: final relative suboptimality, iterations to 1e-6 and 1e-10, budget, steps at the cap.

    `best` is the first of its problem: the fewest iterations to 1e-10, then to 1e-6, then the least final value.
    `marked` is it and every method that cannot be told from it (`pairs_of`); none while a method is undecided.
    """
    rows = []
    for line in lines:
        row: dict[str, Any] = {
            "problem": line.title,
            "method": line.label,
            "n": 0 if line.is_lost else int(line.counts.iloc[-1]),
            "seeds": int(line.cell["seeds"]),
            "undecided": line.cell["leading"] if line.is_lost else "",
            "diverged": int(line.cell["diverged"]),
            "steps": 0 if line.is_lost else int(line.means.index[-1]),
            "final mean": math.nan if line.is_lost else float(line.means["suboptimality/relative"].iloc[-1]),
            "final std": math.nan if line.is_lost else float(line.stds["suboptimality/relative"].iloc[-1]),
        }
        for level in HITS:
            reached, of = line.iterations(level)
            name = f"{level:.0e}".replace("e-0", "e-")
            whole = 0 < len(reached) == of == line.cell["seeds"]
            row |= {
                f"iterations {name}": float(np.mean(reached)) if whole else math.nan,
                f"std {name}": float(np.std(reached, ddof=1)) if whole and of > 1 else math.nan,
                f"reached {name}": len(reached),
            }
        rows.append({**row, "budget": int(line.cell["budget"]), "cap share": line.cap_share, "edge": line.cell["edge"]})
    frame = pd.DataFrame(rows)
    order = ["iterations 1e-10", "iterations 1e-6", "final mean"]
    first = [group.sort_values(order).index[0] for _, group in frame.groupby("problem", sort=False)]
    told = {frozenset((id(pair.line), id(pair.rival))) for pair in pairs_of(lines) if pair.p < LEVEL}
    leader = {line.title: line for line, is_first in zip(lines, frame.index.isin(first), strict=True) if is_first}
    undecided = {line.title for line in lines if line.cell["undecided"]}
    marked = [
        not line.is_lost and line.title not in undecided and frozenset((id(leader[line.title]), id(line))) not in told
        for line in lines
    ]
    return frame.assign(best=frame.index.isin(first) & (frame["n"] > 0), marked=marked)


def checks(lines: Sequence[MethodCurve]) -> pd.DataFrame:
    """One row per line and statement of the paper: the bound, what was measured, the verdict, violations."""
    rows = []
    for line in lines:
        for statement in line.statements:
            rows.append(
                {
                    "problem": line.title,
                    "method": line.label,
                    "statement": statement.name,
                    "kind": statement.kind,
                    "n": int(line.counts.iloc[-1]),
                    "measured": line.measured(statement),
                    "bound": statement.bound,
                    "stays": statement.stays,
                    **dict(zip(("share", "share low", "share high"), line.share(statement), strict=True)),
                    "verdict": line.verdict(statement),
                    **{f"violations {which}": line.violations(which) for which in VIOLATIONS},
                }
            )
    return pd.DataFrame(rows)


def verdicts(lines: Sequence[MethodCurve]) -> list[str]:
    """Whom each Polyak line beats; what does not hold or is vacuous; caps that hold always; choices at an edge."""
    texts = races(lines)
    for line in lines:
        for statement in line.statements:
            if line.verdict(statement) == FAILS:
                texts.append(
                    f"{line.title}: {statement.name} does not hold for {line.label}: it comes to "
                    f"{line.share(statement)[0]:.4g} times its bound"
                )
        for which in VIOLATIONS:
            if line.violations(which):
                texts.append(f"{line.title}: {line.label}: {line.violations(which)} violations of the {which} bound")
        if line.cap_share > CAPPED:
            texts.append(
                f"{line.title}: {line.label}: the cap is active in {line.cap_share:.1%} of the steps: "
                f"this is the constant step size gamma_b = {line.cap:g}"
            )
        if line.cell["undecided"]:
            texts.append(f"{line.title}: {line.label}: undecided, {line.cell['undecided']}")
        if line.cell["edge"]:
            chosen = ", ".join(f"{name} = {line.cell[name]:g}" for name in line.cell["edge"].split())
            texts.append(
                f"{line.title}: {line.label}: {chosen} is at the edge of its grid of {line.cell['candidates']} "
                "candidates; a better value may lie outside"
            )
    return texts + [text for line in lines for text in _remarks(line)]


@dataclass(frozen=True)
class Race:
    """A method against another of its problem: by how much it is ahead, and the p value after Holm."""

    line: MethodCurve
    rival: MethodCurve
    unit: str  # iterations, or final
    difference: Difference
    p: float

    @property
    def result(self) -> str:
        """`ahead of`, `behind`, or `not told from`."""
        if not self.p < LEVEL:
            return "not told from"
        return "ahead of" if self.difference.is_above else "behind"


def pairs_of(lines: Sequence[MethodCurve]) -> list[Race]:
    """Every pair of methods of one problem, Polyak lines before the others, by the interval of their difference.

    In iterations to 1e-10 if every repeat of the first comes so far; a rival that does not counts with all of its
    steps, which is less than it needs. Else in the final relative suboptimality. The choice among candidates is
    accounted for (`analysis.tables.statistics.difference`), and Holm's correction is over all pairs of the sweep.
    """
    pairs = [
        (line, other, *_against(line, other))
        for _, members in by_problem([line for line in lines if not line.is_lost and not line.cell["undecided"]])
        for line, other in itertools.combinations(sorted(members, key=lambda one: not one.is_ours), 2)
    ]
    adjusted = holm([difference.p for *_, difference in pairs])
    return [Race(*pair, p) for pair, p in zip(pairs, adjusted, strict=True)]


def races(lines: Sequence[MethodCurve]) -> list[str]:
    """Per Polyak line whom of the others it is ahead of."""
    every = [race for race in pairs_of(lines) if race.line.is_ours and not race.rival.is_ours]
    by_line = [[race for race in every if race.line is line] for line in lines]
    return [f"{members[0].line.title}: {_race(members)}" for members in by_line if members]


def _against(line: MethodCurve, other: MethodCurve) -> tuple[str, Difference]:
    reached, of = line.iterations(HITS[-1])
    unit, column = ("iterations", HIT) if len(reached) == of else ("final", FINAL)
    ours, theirs = (fewer_is_better(one.last_values(column)) for one in (line, other))
    return unit, difference([ours], [theirs])


def _race(members: Sequence[Race]) -> str:
    line, unit = members[0].line, members[0].unit
    constant = f" (the constant step size {line.cap:g}: cap in {line.cap_share:.0%} of the steps)"
    name = line.label + (constant if line.cap_share > CAPPED else "")
    mine, of = line.iterations(HITS[-1])
    steps = int(line.means.index[-1])
    if unit == "iterations":
        head = f"{name} reaches {HITS[-1]:g} after {np.mean(mine):.0f} iterations (n = {of})"
    else:
        final = line.means["suboptimality/relative"].iloc[-1]
        head = f"{name} ends at {final:.2e} after {steps} steps (n = {of})"
    parts = []
    for result in ("ahead of", "not told from", "behind"):
        some = [race for race in members if race.result == result]
        if some:
            parts.append(f"{result} {', '.join(_rival(race) for race in some)}")
    return f"{head}: {'; '.join(parts)}"


def _rival(race: Race) -> str:
    """`khanh2024 (by 3269 [3100, 3437], p < 0.0001)`: the difference, ours the smaller, its interval, p after Holm.

    The interval is of this pair alone: it may exclude 0 where p, of all pairs, does not let the two be told apart.
    """
    difference = race.difference
    form = ".0f" if race.unit == "iterations" else ".2g"
    theirs, count = race.rival.iterations(HITS[-1])
    at_least = "at least " if race.unit == "iterations" and len(theirs) < count else ""
    if math.isnan(difference.low):
        return f"{race.rival.label} (by {at_least}{difference.estimate:{form}}, {difference.reason})"
    interval = f"[{difference.low:{form}}, {difference.high:{form}}]"
    return f"{race.rival.label} (by {at_least}{difference.estimate:{form}} {interval}, {p_text(race.p)})"


def _remarks(line: MethodCurve) -> list[str]:
    """Where a sentence of the paper does not hold numerically."""
    run = line.run
    if run["scheduler"] not in PUBLISHED or run.get("scheduler_options.setting") != "stochastic":
        return []
    problem = line.problem
    if run["scheduler"] == "andriushchenko2022":
        gamma = min(float(decreasing_step(0, problem.mu)), 1 / (2 * problem.L_max))
        rho = math.sqrt(gamma / problem.L_max)
    else:
        rho, gamma = radius_and_step(str(run["scheduler"]), "stochastic", problem)
    ours = float(bounds.least_step(problem.L_max, rho))
    if ours > gamma:
        return []
    return [
        f"{line.title}: the constant step size that corollary 3.7 permits at the radius of {line.label}, {rho:.4g}, is "
        f"{ours:.4g}: not larger than its first step size {gamma:.4g}, as section 3.2 says it is"
    ]


def by_problem(lines: Sequence[MethodCurve]) -> Iterator[tuple[str, list[MethodCurve]]]:
    """The lines of every problem, in the order of the sweep."""
    titles = dict.fromkeys(line.title for line in lines)
    for title in titles:
        yield title, [line for line in lines if line.title == title]
