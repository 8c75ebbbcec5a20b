"""A sweep of convex problems beside the paper's theorems: methods, statements, and what does not hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves import PUBLISHED, Line
from trainer import bounds
from trainer.history import HITS
from trainer.published import decreasing_step, radius_and_step


def methods(lines: Sequence[Line]) -> pd.DataFrame:
    """One row per line: final relative suboptimality, iterations to 1e-6 and 1e-10, budget, and whether it is first."""
    rows = []
    for line in lines:
        row: dict[str, Any] = {
            "problem": line.title,
            "method": line.label,
            "n": 0 if line.is_lost else int(line.counts.iloc[-1]),
            "seeds": int(line.cell["seeds"]),
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
        rows.append({**row, "budget": int(line.cell["budget"])})
    frame = pd.DataFrame(rows)
    order = ["iterations 1e-10", "iterations 1e-6", "final mean"]
    first = [group.sort_values(order).index[0] for _, group in frame.groupby("problem", sort=False)]
    return frame.assign(best=frame.index.isin(first) & (frame["n"] > 0))


def checks(lines: Sequence[Line]) -> pd.DataFrame:
    """One row per line and statement of the paper: the bound, what was measured, whether it holds, violations."""
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
                    "share": line.share(statement),
                    "holds": line.holds(statement),
                    "violations gamma": line.violations("gamma"),
                    "violations descent": line.violations("descent"),
                }
            )
    return pd.DataFrame(rows)


def verdicts(lines: Sequence[Line]) -> list[str]:
    """Per problem and Polyak line, whether it reaches 1e-10 before every other method; what does not hold."""
    found = []
    for title, members in by_problem(lines):
        ours = [line for line in members if line.is_ours and not line.is_lost]
        others = [line for line in members if not line.is_ours and not line.is_lost]
        for line in ours if others else []:
            found.append(f"{title}: {_race(line, others)}")
    for line in lines:
        for statement in line.statements:
            if line.holds(statement) is False:
                found.append(
                    f"{line.title}: {statement.name} does not hold for {line.label}: it comes to "
                    f"{line.share(statement):.4g} times its bound"
                )
        for which in ("gamma", "descent"):
            if line.violations(which):
                found.append(f"{line.title}: {line.label}: {line.violations(which)} violations of the {which} bound")
    return found + [text for line in lines for text in _remarks(line)]


def _race(line: Line, others: Sequence[Line]) -> str:
    level = HITS[-1]
    mine, of = line.iterations(level)
    if len(mine) < of:
        best = min(others, key=lambda other: other.means["suboptimality/relative"].iloc[-1])
        own, theirs = (one.means["suboptimality/relative"].iloc[-1] for one in (line, best))
        word = "below" if own < theirs else "not below"
        return (
            f"{line.label} does not reach {level:g} within {int(line.means.index[-1])} steps; it ends at {own:.2e}, "
            f"{word} the best other, {best.label} at {theirs:.2e}"
        )
    slower: list[str] = []
    faster: list[str] = []
    for other in others:
        theirs, count = other.iterations(level)
        later = len(theirs) < count or np.mean(theirs) > np.mean(mine)
        when = f"{np.mean(theirs):.0f}" if len(theirs) == count else f"not within {int(other.means.index[-1])}"
        (slower if later else faster).append(f"{other.label} ({when})")
    text = f"{line.label} reaches {level:g} after {np.mean(mine):.0f} iterations (n = {of})"
    if slower:
        text += f", fewer than {', '.join(slower)}"
    return f"{text}; NOT fewer than {', '.join(faster)}" if faster else text


def _remarks(line: Line) -> list[str]:
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


def by_problem(lines: Sequence[Line]) -> Iterator[tuple[str, list[Line]]]:
    """The lines of every problem, in the order of the sweep."""
    titles = dict.fromkeys(line.title for line in lines)
    for title in titles:
        yield title, [line for line in lines if line.title == title]
