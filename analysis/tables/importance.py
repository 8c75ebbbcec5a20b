"""Which parameters of a search mattered: tests with a known error rate, and what a forest makes of each. Pure.

SciPy's statistics and scikit-learn are imported when they are needed: together they take a second and a half.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy import special

from polysweep.analysis.data.display import Displayed
from polysweep.analysis.data.frames import direction
from polysweep.analysis.tables.leaderboard import Leaderboard
from polysweep.analysis.tables.selection import format_value
from polysweep.analysis.tables.statistics import holm
from polysweep.analysis.tables.wording import printable, shortened, value_text
from polysweep.sweeps.planning.welch import LEVEL, p_text

FEWEST: Final = 10
"""Points below which nothing is said."""
QUARTERS: Final = 4
FOLDS: Final = 5
TREES: Final = 100
SHUFFLES: Final = 5
RANDOM_STATE: Final = 0
UNTESTED: Final = {
    "n": 0, "spearman": math.nan, "p_spearman": math.nan, "share": math.nan, "p_share": math.nan, "best": "",
    "is_inside": False, "reason": "",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Importance(Displayed):
    """Which parameters mattered for the metric, over the `n` of `points` of which every seed has a result.

    `parameters`: one row per parameter that varies, the most important first: `parameter`, `n` (points that have it),
    `spearman` (its rank correlation with the metric; NaN for words), `p_spearman`, `share` (of the variance of the
    ranks, what a parabola in the ranks of its values explains; of words, what lies between them, eta^2), `p_share`,
    `best` (the word, or the quarter of the numbers, with the best mean rank), `importance` (NaN if not shown) and
    `verdict`. The p values are Holm's over all tests of all parameters. `explained`: the share of the variance of the
    ranks that the forest explains.
    """

    name: str  # of the sweep
    metric: str
    parameters: pd.DataFrame
    n: int
    points: int
    explained: float  # NaN without a forest
    is_predictive: bool  # whether the forest predicts points that it has not seen
    reason: str = ""  # why nothing can be said

    def headline(self) -> str:
        """`made: parameters that mattered for test/top1, from 30 of 30 points`."""
        what = f"{self.name}: parameters that mattered for {self.metric}, from {self.n} of {self.points} points"
        return f"{what}: {self.reason}" if self.reason else what

    def overview(self) -> pd.DataFrame:
        """The parameters, with what is shown of each."""
        return self.parameters

    def lines(self) -> list[str]:
        """The same in sentences: one of each parameter, and how far the forest can be believed."""
        lost = "a point with diverged or stopped seeds counts as worse than all without"
        head = f"which parameters mattered for {self.metric}, n = {self.n} of {self.points} points"
        if self.reason:
            return [f"{head}: not shown, {self.reason}"]
        rows = [f"  {printable(row['parameter'])}: {_sentence(row)}" for row in self.parameters.to_dict("records")]
        return [f"{head} ({lost}; p: Holm, over all tests of all parameters):", *rows, self.about_the_forest()]

    def about_the_forest(self) -> str:
        """What an importance is, and how much of the ranks the forest explains."""
        if math.isnan(self.explained):
            return "importance: not shown, no parameter can be tested"
        if not self.is_predictive:
            return "importance: not shown, a forest does not predict the ranks of points that it has not seen"
        return (
            f"importance: how much less of the variance of the ranks a forest explains, now {self.explained:.0%}, if "
            f"the values of the parameter are shuffled ({FOLDS}-fold cross-validation, {TREES} trees)"
        )


def importance(board: Leaderboard) -> Importance:
    """Say of each parameter of a leaderboard whether it mattered.

    The ranks of the points are compared with the values of each parameter, so that neither the scale of the metric nor
    of the parameter matters. Of a number two tests: Spearman's, which finds that more is better or worse, and an F test
    of a parabola in ranks, which finds an optimum inside; of words Kruskal and Wallis' test. If no parameter matters,
    at most one sweep in twenty is said to have one that does. A permutation importance, by extremely randomized trees
    (Geurts et al., 2006), is shown if the trees predict points that they have not seen: Spearman's correlation is above
    0, one-sided p < 0.05.
    """
    selection, ranked = board.selection, board.ranked
    name, metric = selection.pulled.protocol.name, selection.by
    n, points = len(ranked), len(board.points)
    empty = pd.DataFrame(columns=["parameter", *UNTESTED, "importance", "verdict"]).drop(
        columns=["is_inside", "reason"]
    )
    if n < FEWEST:
        return Importance(name, metric, empty, n, points, math.nan, False, f"{FEWEST} points with all results needed")
    from scipy.stats import rankdata

    worse = rankdata(ranked["rank"].astype(float))  # 1: the best; equal points share the mean of their ranks
    if len(set(worse)) == 1:
        return Importance(name, metric, empty, n, points, math.nan, False, "all points are equally good")
    sign = -1 if direction(metric, selection.pulled.protocol) else 1
    columns = {one: _values(ranked[one]) for one in board.parameters}
    rows = [{"parameter": one, **_tested(values, worse, sign)} for one, values in columns.items()]
    _correct(rows)
    usable = {row["parameter"]: columns[row["parameter"]] for row in rows if not row["reason"]}
    explained, is_predictive, drops = _forest(usable, worse) if usable else (math.nan, False, {})
    for row in rows:
        row["importance"] = drops.get(row["parameter"], math.nan) if is_predictive else math.nan
        row["verdict"] = _verdict(row, sign)
    rows.sort(key=lambda row: (-np.nan_to_num(row["importance"], nan=-1.0), _smallest(row)))
    frame = pd.DataFrame(rows).drop(columns=["is_inside", "reason"]).astype({"n": int})
    return Importance(name, metric, frame, n, points, explained, is_predictive)


def _values(column: pd.Series) -> list[Any]:
    """The values of a parameter: floats if all are numbers, else words; None where it does not apply."""
    values = [None if format_value(value) == "-" else value for value in column]
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return [None if value is None else float(value) for value in values]
    return [None if value is None else value_text(value) for value in values]


def _tested(values: Sequence[Any], worse: np.ndarray, sign: int) -> dict[str, Any]:
    """The tests of one parameter, uncorrected, and why there are none."""
    from scipy import stats

    has = np.array([value is not None for value in values])
    own, ranks = [value for value in values if value is not None], stats.rankdata(worse[has])
    distinct, are_numbers = len(set(own)), not any(isinstance(value, str) for value in own)
    row = {**UNTESTED, "n": len(own)}
    if len(own) < FEWEST:
        return {**row, "reason": f"{len(own)} points have it"}
    if distinct == 1 or len(set(ranks)) == 1:
        return {**row, "reason": "it has one value" if distinct == 1 else "all of its points are equally good"}
    if not are_numbers and 2 * distinct > len(own):
        return {**row, "reason": f"{distinct} values in {len(own)} points"}
    if are_numbers:
        correlation = stats.spearmanr(own, ranks)
        row |= {"spearman": sign * float(correlation.statistic), "p_spearman": float(correlation.pvalue)}
        if distinct == 2:  # Spearman's test says it all
            return row
    groups = _groups(own, are_numbers)
    share, p = _parabola(stats.rankdata(own), ranks) if are_numbers else _between(groups, ranks)
    best = min(dict.fromkeys(groups), key=lambda label: ranks[groups == label].mean())
    inside = [value for value, label in zip(own, groups, strict=True) if label == best]
    ends = f"{min(inside):.3g} to {max(inside):.3g}" if are_numbers and min(inside) < max(inside) else ""
    is_inside = are_numbers and min(own) < min(inside) and max(inside) < max(own)
    return row | {"share": share, "p_share": p, "best": ends or value_text(inside[0]), "is_inside": is_inside}


def _parabola(places: np.ndarray, ranks: np.ndarray) -> tuple[float, float]:
    """R^2 of the least-squares parabola of ranks in ranks, and the p value of its F test, 2 and n - 3 degrees."""
    n, centred = len(ranks), (places - places.mean()) / len(places)
    fitted = np.polynomial.Polynomial.fit(centred, ranks, 2)(centred)
    share = 1 - float(((ranks - fitted) ** 2).sum() / ((ranks - ranks.mean()) ** 2).sum())
    return share, float(special.fdtrc(2, n - 3, share / 2 * (n - 3) / max(1 - share, sys.float_info.epsilon)))


def _between(groups: np.ndarray, ranks: np.ndarray) -> tuple[float, float]:
    """Of Kruskal and Wallis' H its eta^2 = (H - k + 1) / (n - k), at least 0, and its p value."""
    from scipy import stats

    samples = [ranks[groups == label] for label in dict.fromkeys(groups)]
    h, p = stats.kruskal(*samples)
    return max(0.0, float(h - len(samples) + 1) / (len(ranks) - len(samples))), float(p)


def _groups(values: Sequence[Any], are_numbers: bool) -> np.ndarray:
    """By value its group: words, and numbers of few values, are groups themselves, others their quarters."""
    from scipy.stats import rankdata

    if not are_numbers or len(set(values)) <= QUARTERS:
        places = {value: at for at, value in enumerate(dict.fromkeys(values))}
        return np.array([places[value] for value in values])
    return np.asarray(np.minimum((rankdata(values) - 1) * QUARTERS // len(values), QUARTERS - 1))


def _correct(rows: Sequence[dict[str, Any]]) -> None:
    """Holm's correction of all p values together."""
    names = ("p_spearman", "p_share")
    adjusted = iter(holm([row[name] for row in rows for name in names]))
    for row in rows:
        row |= {name: next(adjusted) for name in names}


def _smallest(row: Mapping[Any, Any]) -> float:
    return min([p for p in (row["p_spearman"], row["p_share"]) if not math.isnan(p)], default=math.inf)


def _verdict(row: Mapping[str, Any], sign: int) -> str:
    if row["reason"]:
        return f"not tested: {row['reason']}"
    if row["p_spearman"] < LEVEL and not (row["is_inside"] and row["p_share"] < row["p_spearman"]):
        is_more_better = row["spearman"] * -sign > 0
        return f"shown: {'larger' if is_more_better else 'smaller'} is better"
    if row["p_share"] < LEVEL:
        is_word = math.isnan(row["spearman"])
        return f"shown: {'its values differ, the best is' if is_word else 'best at'} {row['best']}"
    return "not shown"


def _sentence(row: Mapping[Any, Any]) -> str:
    """`shown: larger is better (Spearman 0.71, p < 0.0001; importance 0.81)`."""
    numbers = []
    if not math.isnan(row["spearman"]):
        numbers.append(f"Spearman {row['spearman']:.2f}, {p_text(row['p_spearman'])}")
    if not math.isnan(row["p_share"]):
        test = "Kruskal-Wallis eta^2" if math.isnan(row["spearman"]) else "parabola R^2"
        numbers.append(f"{test} {row['share']:.2f}, {p_text(row['p_share'])}")
    if not math.isnan(row["importance"]):
        numbers.append(f"importance {row['importance']:.2f}")
    notes = f" ({'; '.join(numbers)}; n = {row['n']})" if numbers else ""
    return f"{shortened(row['verdict'])}{notes}"


def _forest(columns: Mapping[str, Sequence[Any]], worse: np.ndarray) -> tuple[float, bool, dict[str, float]]:
    """How much of the variance of the ranks a forest explains, whether that is more than chance, and importances.

    Of points left out of the fit, five folds; an importance is the mean over all folds and several shuffles.
    """
    from scipy.stats import spearmanr
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.model_selection import KFold

    inputs = np.column_stack([_coded(values) for values in columns.values()])
    n, count = inputs.shape
    predicted, errors = np.zeros(n), np.zeros((count, SHUFFLES))
    generator = np.random.default_rng(RANDOM_STATE)
    for seen, unseen in KFold(FOLDS, shuffle=True, random_state=RANDOM_STATE).split(inputs):
        trees = ExtraTreesRegressor(TREES, random_state=RANDOM_STATE).fit(inputs[seen], worse[seen])
        predicted[unseen] = trees.predict(inputs[unseen])
        copies = np.tile(inputs[unseen], (count, SHUFFLES, 1, 1))  # (parameters, shuffles, points, parameters)
        for at in range(count):
            copies[at, :, :, at] = generator.permuted(copies[at, :, :, at], axis=1)
        answers = trees.predict(copies.reshape(-1, count)).reshape(count, SHUFFLES, len(unseen))
        errors += ((answers - worse[unseen]) ** 2).sum(axis=2)
    variance, error = ((worse - worse.mean()) ** 2).sum(), ((predicted - worse) ** 2).sum()
    correlation = spearmanr(predicted, worse) if len(set(predicted)) > 1 else None
    is_predictive = correlation is not None and correlation.statistic > 0 and correlation.pvalue / 2 < LEVEL
    drops = (errors.mean(axis=1) - error) / variance
    explained = float(1 - error / variance)
    return explained, bool(is_predictive and explained > 0), dict(zip(columns, drops.tolist(), strict=True))


def _coded(values: Sequence[Any]) -> np.ndarray:
    """A parameter as trees take it: ranks of numbers, of words their order; in the middle where it does not apply."""
    there = sorted({value for value in values if value is not None})
    places = {value: float(at) for at, value in enumerate(there)}
    middle = (len(there) - 1) / 2
    return np.array([places.get(value, middle) for value in values])
