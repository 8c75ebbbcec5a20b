"""What `polysweep theory` prints: the problems' constants, the methods, the paper's statements, what holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from polysweep.analysis.tables.writers import Entry, Table, markdown
from polysweep.analysis.theory.checks import VIOLATIONS, by_problem, checks, methods, verdicts
from polysweep.analysis.theory.curves import FAILS, MethodCurve

LEVELS = ("1e-6", "1e-10")


def render_theory(lines: Sequence[MethodCurve], name: str) -> str:
    """The whole text, Markdown."""
    methods_, checks_ = methods(lines), checks(lines)
    parts = [f"{name}: the paper's bounds beside what was measured"]
    for title, members in by_problem(lines):
        parts.append(_constants(title, members[0]))
        parts.append(markdown(methods_table(methods_[methods_["problem"] == title])))
        stated = checks_[checks_["problem"] == title] if len(checks_) else checks_
        if len(stated):
            parts.append(markdown(checks_table(stated)))
    parts.append("\n".join([*legend_of(checks_), "", *(f"- {text}" for text in verdicts(lines))]).strip())
    return "\n\n".join(parts)


def _constants(title: str, line: MethodCurve) -> str:
    problem = line.problem
    told = {
        "L": problem.L, "L_max": problem.L_max, "mu": problem.mu, "f*": problem.f_star,
        "sigma^2 (lower bound 0)": problem.sigma2(),
    }  # fmt: skip
    return f"{title}: " + ", ".join(f"{key} = {value:.6g}" for key, value in told.items())


def methods_table(frame: pd.DataFrame) -> Table:
    """The rows of `checks.methods`, the best of a problem and what cannot be told from it marked."""
    header = [
        "method",
        "final relative suboptimality",
        *(f"iterations to {level}" for level in LEVELS),
        "steps at the cap",
        "runs chosen from",
    ]
    rows: list[list[str | Entry]] = []
    for row in frame.to_dict("records"):
        name = Entry(str(row["method"]), is_marked=row["marked"])
        final = _with_std(row["final mean"], row["final std"], ".2e")
        if not row["n"]:
            if row["undecided"]:
                rows.append([name, f"undecided: {row['undecided']}", *["-"] * len(LEVELS), "-", str(row["budget"])])
                continue
            what = "diverged" if row["diverged"] == row["seeds"] else "none finished"
            rows.append([name, f"{what} {row['seeds']}/{row['seeds']}", *["-"] * len(LEVELS), "-", str(row["budget"])])
            continue
        if row["n"] < row["seeds"]:
            lost = f", {row['diverged']} diverged" if row["diverged"] else ""
            final += f" ({row['n']}/{row['seeds']}{lost})"
        reached = []
        for level in LEVELS:
            mean, count = row[f"iterations {level}"], row[f"reached {level}"]
            if math.isnan(mean):
                reached.append(f"> {row['steps']}" + (f" ({count}/{row['seeds']} reach it)" if count else ""))
            else:
                reached.append(_with_std(mean, row[f"std {level}"], ".0f"))
        capped = "-" if math.isnan(row["cap share"]) else f"{row['cap share']:.1%}"
        rows.append([name, final, *reached, capped, str(row["budget"])])
    return Table(header, rows)


def checks_table(frame: pd.DataFrame) -> Table:
    """The rows of `checks.checks`: each statement of the paper beside what was measured."""
    header = [
        "method",
        "statement",
        "measured",
        "bound",
        "down to",
        "of bound",
        "verdict",
        "below gamma",
        "above descent",
        "against lemmas",
    ]
    rows: list[list[str | Entry]] = []
    for row in frame.to_dict("records"):
        form = {"rate": "{:.9f}", "cesaro": "{:.4g}", "limit": "{:.2e}"}[row["kind"]]
        bound = "-> 0" if row["kind"] == "limit" else form.format(row["bound"])
        rows.append(
            [
                row["method"],
                row["statement"],
                form.format(row["measured"]),
                bound,
                f"{row['stays']:.3g}" if row["stays"] else "0",
                _share(row),
                Entry(row["verdict"], is_marked=row["verdict"] == FAILS),
                *(_count(row[f"violations {which}"]) for which in VIOLATIONS),
            ]
        )
    return Table(header, rows)


def legend_of(checks_: pd.DataFrame) -> list[str]:
    """What the columns of `checks_table` mean."""
    if not len(checks_):
        return []
    kinds = set(checks_["kind"])
    texts = {
        "rate": "strongly convex: E||x^t - x*||^2 <= bound^t ||x^0 - x*||^2 + (down to); measured is the factor a step "
        "down to twice the least distance",
        "cesaro": "convex: E[f(mean of x^t) - f*] <= bound ||x^0 - x*||^2 / T + (down to); measured is the least that "
        "could stand for the bound",
        "limit": "decreasing radius: f(x^t) -> f*; measured is the mean relative suboptimality at the end, "
        "and 1e-3 counts as close",
    }
    return [
        *(text for kind, text in texts.items() if kind in kinds),
        "E is the mean over the runs; 'of bound' is the largest share of its own bound that a run has come to at a "
        "recorded step, or if the statement is one in expectation the mean share with the upper end of its 95 % "
        "interval: it holds if that is at most 1. Vacuous: the bound is never below what it bounds was at the start. "
        "The last three columns count steps of all runs, by more than rounding: a step size below its bound, "
        "||x - x*||^2 above the descent property, and an inequality of the auxiliary lemmas that did not hold.",
    ]


def _share(row: Mapping[Any, Any]) -> str:
    if math.isnan(row["share"]):
        return "-"
    upper = "" if row["share high"] == row["share"] else f" (up to {row['share high']:.2g})"
    return f"{row['share']:.2g}{upper}"


def _with_std(mean: float, std: float, form: str) -> str:
    return f"{mean:{form}}" if math.isnan(std) else f"{mean:{form}} +- {std:{form}}"


def _count(value: object) -> str:
    return "-" if value is None or (isinstance(value, float) and math.isnan(value)) else f"{value:.0f}"
