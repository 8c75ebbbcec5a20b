"""The curve of a method on a convex problem, and what the paper states about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from polysweep.analysis.tables.statistics import mean_interval
from polysweep.sweeps.planning.welch import LEVEL, Candidates, Sample
from polysweep.trainer.convex import bounds
from polysweep.trainer.convex.coverage import ROUNDING as COVERED
from polysweep.trainer.convex.coverage import is_lower_bound
from polysweep.trainer.convex.problem import Problem
from polysweep.trainer.history import PROBLEM_COLUMNS

POLYAK: Final = ("polyak", "polyak-deterministic")
PUBLISHED: Final = ("andriushchenko2022", "khanh2024", "oikonomou2025")
FLOOR: Final = 1e-24
"""||x - x*||^2 relative to its start below which the rounding of x shows."""
CLOSE: Final = 1e-3
"""Relative suboptimality at which f(x^t) -> f* counts as seen."""
FINAL: Final = "suboptimality/relative"
HIT: Final = "iterations/1e-10"
HOLDS, FAILS, VACUOUS = "holds", "does not hold", "vacuous"
ROUNDING: Final = 1e-9
"""By how much a measured factor may exceed its bound: means over seeds are sums of rounded numbers."""


@dataclass(frozen=True)
class Statement:
    """One claim of the paper about one curve.

    `kind`: `rate`, a contraction factor of E||x^t - x*||^2 down to `stays`; `cesaro`, the constant c of
    E[f(mean of x^t) - f*] <= c ||x^0 - x*||^2 / T + `stays`; `limit`, f(x^t) -> f*.
    """

    name: str
    kind: str
    bound: float
    stays: float = 0.0

    def after(self, steps: np.ndarray, distance: Any) -> np.ndarray:
        """The bound after `steps` steps, for ||x^0 - x*||^2 = `distance`."""
        factor = self.bound**steps if self.kind == "rate" else self.bound / np.maximum(steps, 1)
        return np.asarray(factor * distance + self.stays)


@dataclass(frozen=True)
class MethodCurve:
    """One method on one problem: the chosen configuration of a cell and the histories of its finished runs."""

    label: str
    title: str  # of the problem
    problem: Problem
    batch_size: int
    cell: Mapping[Any, Any]
    run: Mapping[Any, Any]  # the fields of one of its runs
    history: pd.DataFrame  # trial_id, seed, step and the columns of a convex task
    candidates: Mapping[str, Candidates] = field(default_factory=dict)
    """By column, the last values of the cell's candidates, the chosen one first; without any its own are taken."""

    @property
    def is_full(self) -> bool:
        """Whether every step sees all f_i."""
        return self.batch_size == self.problem.n

    @property
    def smooth(self) -> float:
        """L with full batches, else L_max."""
        return self.problem.L if self.is_full else self.problem.L_max

    @property
    def rho(self) -> float:
        """The radius, 0 for an optimizer without one."""
        value = self.run.get("rho")
        return 0.0 if value is None or value is pd.NA else float(value)

    @property
    def cap(self) -> float:
        """gamma_b; infinite for the deterministic scheduler, the step size itself where that is constant."""
        name = {"polyak": "gamma_b", "constant": "lr"}.get(str(self.run["scheduler"]))
        return math.inf if name is None else float(self.run[name])

    @property
    def sigma2(self) -> float:
        """The variance measure of eq. (variance) for the lower bound in use."""
        if self.run["scheduler"] == "polyak":
            return self.problem.sigma2(float(self.run["lower_bound"]))
        if self.run["scheduler"] == "constant" and not self.is_full:
            return self.problem.sigma2()
        return 0.0

    @property
    def alpha(self) -> float:
        """alpha of theorems 3.5 and 3.8; with full batches 1 / alpha is the constant of theorem 3.2."""
        return float(bounds.alpha(self.smooth, self.rho, bounds.ceiling(self.smooth, self.cap)))

    @property
    def decreases(self) -> bool:
        """Whether the radius decreases to 0."""
        return str(self.run.get("rho_schedule")) in ("inverse_sqrt", "inverse")

    @property
    def is_ours(self) -> bool:
        """Whether it is USAM with a Polyak scheduler as the paper has it."""
        plain_step = not _number(self.run, "weight_decay") and not _number(self.run, "momentum")
        return self.run["optimizer"] == "usam" and self.run["scheduler"] in POLYAK and plain_step

    @property
    def is_lost(self) -> bool:
        """Whether none of its runs has finished."""
        return not len(self.history)

    @property
    def _is_covered(self) -> bool:
        """Whether the paper speaks of the method at all."""
        run = self.run
        if self.is_lost or run["optimizer"] not in ("usam", "sgd") or run["scheduler"] not in ("constant", *POLYAK):
            return False
        if _number(run, "weight_decay") or _number(run, "momentum") or run.get("base") in ("adam", "adamw"):
            return False
        if run["scheduler"] == "constant":
            return self.smooth * self.rho < 1 and self.cap <= bounds.least_step(self.smooth, self.rho)
        return is_lower_bound(_number(run, "lower_bound"), self.problem, self.batch_size)

    @cached_property
    def statements(self) -> list[Statement]:
        """The claims that the paper makes about this curve."""
        if not self._is_covered:
            return []
        if self.decreases:
            exact = self.is_full and self.run["scheduler"] == "polyak-deterministic"
            return [Statement("Theorem 3.4, decreasing radius", "limit", 0.0)] if exact else []
        if self.smooth * self.rho >= 1 - COVERED:
            return []  # at rho = 1/L itself the bounds say nothing: their factor is 1
        constant = self.run["scheduler"] == "constant"
        names = ("Theorem 3.5, strongly convex", "Theorem 3.8, convex")
        if constant:
            names = ("Corollary 3.7, constant step size", "Theorem 3.8, constant step size")
        elif self.is_full and math.isinf(self.cap):
            names = ("Theorem 3.1, strongly convex", "Theorem 3.2, convex")
        elif math.isinf(self.cap):
            names = ("Corollary 3.6, interpolation", "Theorem 3.8, interpolation")
        mu, alpha, sigma2 = self.problem.mu, self.alpha, self.sigma2
        lines = []
        if mu:
            stays = bounds.neighbourhood(mu, alpha, self.cap, sigma2)
            lines.append(Statement(names[0], "rate", bounds.rate(mu, alpha), stays))
        stays = bounds.cesaro(alpha, self.cap, sigma2, 0.0, 1)
        return [*lines, Statement(names[1], "cesaro", 1 / alpha, stays)]

    @cached_property
    def _by_step(self) -> Any:
        return self.history.groupby("step")[[name for name in PROBLEM_COLUMNS if name in self.history]]

    @cached_property
    def means(self) -> pd.DataFrame:
        """Per step the mean over the runs of every column; the index is the step."""
        return self._by_step.mean()  # type: ignore[no-any-return]

    @cached_property
    def stds(self) -> pd.DataFrame:
        """Per step their sample std; NaN for one run."""
        return self._by_step.std()  # type: ignore[no-any-return]

    @cached_property
    def counts(self) -> pd.Series:
        """Per step how many runs there are."""
        return self._by_step.size()  # type: ignore[no-any-return]

    @cached_property
    def start(self) -> tuple[float, float]:
        """The means over the runs of f(x^0) - f* and ||x^0 - x*||^2."""
        first = self.history.sort_values("step").drop_duplicates("trial_id")
        gap = first["suboptimality"] / first["suboptimality/relative"]
        return float(gap.mean()), float((first["distance"] / first["distance/relative"]).mean())

    def curve(self, statement: Statement, steps: np.ndarray) -> np.ndarray:
        """The bound of a statement after `steps` steps: of E||x^t - x*||^2, or of E[f(mean) - f*]."""
        return statement.after(steps, self.start[1])

    def measured(self, statement: Statement) -> float:
        """What stands beside the statement's bound.

        Of `rate` the contraction factor a step, (D_k / D_0)^(1/k) for D the mean of ||x^t - x*||^2 and k the step at
        which it has come to twice its least value, or to the rounding of x. Of `cesaro` the least c with which the
        statement holds at every recorded step. Of `limit` the mean relative suboptimality at the end.
        """
        means, distance = self.means, self.start[1]
        steps = means.index.to_numpy(dtype=float)
        if statement.kind == "limit":
            return float(means["suboptimality/relative"].iloc[-1])
        if statement.kind == "rate":
            left = means["distance"].to_numpy() / distance
            at = int(np.argmax(left <= max(2 * left.min(), FLOOR)))
            return float(left[at] ** (1 / steps[at]))
        above = np.maximum(means["suboptimality/cesaro"].to_numpy() - statement.stays, 0.0)
        return float(np.max(above * steps) / distance)

    def share(self, statement: Statement) -> tuple[float, float, float]:
        """The share of its own bound that a run has come to: the largest of all recorded steps, and its interval.

        A run's own bound is that from its own ||x^0 - x*||^2. Of a statement in expectation the share is the mean over
        the runs, its interval is Student's; low is at the level 0.05 for all steps together. A statement about every
        run has the largest share of any of them, and no interval: low and high are the share. NaN of a limit.
        """
        if statement.kind == "limit":
            return math.nan, math.nan, math.nan
        column = {"rate": "distance", "cesaro": "suboptimality/cesaro"}[statement.kind]
        seen = self.history.pivot(index="step", columns="trial_id", values=column)
        starts = self.history.sort_values("step").drop_duplicates("trial_id").set_index("trial_id")
        distances = (starts["distance"] / starts["distance/relative"])[seen.columns].to_numpy()
        if statement.kind == "rate" and not statement.stays:
            seen = seen[seen.mean(axis=1) > FLOOR * distances.mean()]  # below it x is rounded, while the bound falls
        if not len(seen):
            return 0.0, 0.0, 0.0
        bound = statement.after(seen.index.to_numpy(dtype=float)[:, None], distances[None, :])
        if (bound <= 0).any():
            return math.inf, math.inf, math.inf
        shares = seen.to_numpy() / bound
        if self.is_full:
            return float(shares.max()), float(shares.max()), float(shares.max())
        samples = [Sample.of(row) for row in shares]
        lows = [mean_interval(sample, level=LEVEL / len(samples))[0] for sample in samples]
        highs = [mean_interval(sample)[1] for sample in samples]
        return float(shares.mean(axis=1).max()), max(lows), max(highs)

    def is_vacuous(self, statement: Statement) -> bool:
        """Whether the bound is never below what it bounds was at the start, so that it says nothing."""
        if statement.kind == "limit":
            return False
        at_start = self.start[1] if statement.kind == "rate" else self.start[0]
        return bool(self.curve(statement, self.means.index.to_numpy(dtype=float)).min() >= at_start)

    def verdict(self, statement: Statement) -> str:
        """`holds`, `does not hold`, `vacuous`, `not shown`, or `not reached yet`.

        A statement about every run holds if no run exceeds its bound at a recorded step. One in expectation holds if
        the upper end of its interval does not, and does not if the lower end, at 0.05 for all steps together, does at
        one of them. A limit holds once the relative suboptimality has come down to 1e-3.
        """
        if statement.kind == "limit":
            return HOLDS if self.measured(statement) < CLOSE else "not reached yet"
        _, low, high = self.share(statement)
        if low > 1 + ROUNDING or self.cell["diverged"]:
            return FAILS
        if self.is_vacuous(statement):
            return VACUOUS
        return HOLDS if high <= 1 + ROUNDING else "not shown"

    @property
    def cap_share(self) -> float:
        """The share of the steps of all runs at the cap gamma_b, NaN for a method without one."""
        has_cap = self.run["scheduler"] == "polyak"
        return float(self.cell["cap_share"]) if has_cap and not is_missing(self.cell["cap_share"]) else math.nan

    def last_values(self, column: str) -> Candidates:
        """The last values of a column of the cell's candidates: one that a run has not reached counts as its steps."""
        if column in self.candidates:
            return self.candidates[column]
        last = self.history.sort_values("step").drop_duplicates("trial_id", keep="last")
        return [Sample.of(last[column].fillna(last["step"]).tolist())]

    def violations(self, which: str) -> int | None:
        """Steps of all runs in which an inequality did not hold; None where the paper claims none."""
        name = f"violations/{which}"
        if name not in self.history:
            return None
        last = self.history.sort_values("step").drop_duplicates("trial_id", keep="last")[name].dropna()
        return int(last.sum()) if len(last) else None

    def iterations(self, level: float) -> tuple[list[float], int]:
        """Steps until the relative suboptimality was first `level`, of the runs that came so far; and of how many."""
        name = f"iterations/{level:.0e}".replace("e-0", "e-")
        last = self.history.sort_values("step").drop_duplicates("trial_id", keep="last")
        return [float(value) for value in last[name].dropna()], len(last)


def is_missing(value: Any) -> bool:
    """Whether a field of a run or a cell has no value."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def _number(run: Mapping[Any, Any], name: str) -> float:
    value = run.get(name)
    return 0.0 if is_missing(value) else float(value)  # type: ignore[arg-type]
