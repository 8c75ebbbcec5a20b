"""What the looks at a replicated sweep have decided, as its Store keeps them; docs/analysis.md has the rule."""

from __future__ import annotations

from typing import Final

import pandas as pd

from polysweep.analysis.data.frames import RunSet
from polysweep.sweeps.planning.decision_lines import amount_text, begun_text
from polysweep.sweeps.spec.decisions import OPEN
from polysweep.sweeps.spec.protocol import metric_reported
from polysweep.trainer.history import is_accuracy

COLUMNS: Final = (
    "cells", "compared", "one", "other", "verdict", "estimate", "low", "high", "n", "look", "seeds", "bound",
    "diverged",
)  # fmt: skip


def decisions(pulled: RunSet) -> pd.DataFrame:
    """One row per comparison: the verdict on `one` against `other`, and the look that it is of.

    That is the look that has decided it, or the last one. `estimate` is the difference of the means of the metric,
    larger is better for `one`; `low` and `high` are the ends of its interval at the level `bound` of that look (NaN: no
    end), `n` the finished seeds of the cell that has fewer, `seeds` those that the look asks for, `diverged` how many
    have diverged in each cell. Without a replication, or before its first look, there are no rows.
    """
    rule = pulled.protocol
    rows = {}
    for look in rule.looks_made:
        for one in look.compared:
            ends = (one.estimate, one.low, one.high)
            field = rule.replication.field if rule.replication else ""
            rows[one.cells] = (
                one.where, field, one.better, one.than, one.verdict, *ends, one.n, look.number, look.seeds, look.bound,
                f"diverged {one.diverged[0]} and {one.diverged[1]}",
            )  # fmt: skip
    frame = pd.DataFrame(list(rows.values()), columns=list(COLUMNS))
    return frame.astype({"estimate": float, "low": float, "high": float})


def replicated_metric(pulled: RunSet) -> str:
    """What was compared."""
    rule = pulled.protocol
    asked = rule.replication.metric if rule.replication else ""
    return asked or metric_reported(rule.metric, rule.roles)


def decision_rows(pulled: RunSet) -> list[list[str]]:
    """A header, and a row per comparison as text: `rho=0.1`, `polyak better than constant`, ..."""
    metric = replicated_metric(pulled)
    unit = " (points)" if is_accuracy(metric) else ""
    rows = [["cells", "verdict", f"difference{unit}", "interval", "n", "decided at", "bound"]]
    for row in decisions(pulled).to_dict("records"):
        verdict = row["verdict"]
        words = f"{row['one']} and {row['other']}: {verdict}"
        if verdict in ("better", "worse"):
            words = f"{row['one']} {verdict} than {row['other']}"
        ends = [row["low"], row["high"]]
        rows.append(
            [
                row["cells"] or "all",
                words,
                row["diverged"] if pd.isna(row["estimate"]) else amount_text(row["estimate"], metric),
                "-" if any(map(pd.isna, ends)) else " to ".join(amount_text(end, metric) for end in ends),
                str(row["n"]),
                "not decided" if verdict == OPEN else f"look {row['look']}",
                f"{row['bound']:.2g}",
            ]
        )
    return rows


def replication_text(pulled: RunSet) -> str:
    """How it was decided: what was compared, at which level, at which looks; empty without a replication."""
    replication, looks_made = pulled.protocol.replication, pulled.protocol.looks_made
    if replication is None or not looks_made:
        return ""
    looks = ", ".join(f"{seeds}" for seeds in replication.looks)
    margin = f" Cells whose difference is within {replication.margin} are equivalent." if replication.margin else ""
    left = sum(one.verdict == OPEN for one in looks_made[-1].compared)
    count = looks_made[0].comparisons
    seen = f" {begun_text(pulled.protocol.begun)}." if pulled.protocol.begun else ""
    return (
        f"{replication.field} by {replicated_metric(pulled)}: decided comparisons: {count - left} of {count}. Seeds "
        f"are added until a comparison is decided, with looks planned at n = {looks}. The chance of any false "
        f"decision, over all looks and comparisons, is at most {replication.level:.3g}.{seen}{margin}"
    )
