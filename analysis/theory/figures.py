"""The theory figures: suboptimality, distance and averaged iterates on a log axis, each beside its bound."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polysweep.analysis.figures.files import NamedFigure, figure_name
from polysweep.analysis.figures.gallery import WIDTHS
from polysweep.analysis.figures.panels import titled
from polysweep.analysis.figures.styles import axes_of, look_at, one_at_a_time
from polysweep.analysis.tables.wording import axis_label, drawable, equals, in_unicode
from polysweep.analysis.theory.checks import by_problem
from polysweep.analysis.theory.curves import MethodCurve, Statement
from polysweep.trainer.errors import UserError, expected

DASHES: Final = ("-", (0, (5, 1.2)), (0, (3, 1, 1, 1)), (0, (1, 1)))
BOUND: Final = (0, (1, 2.2))
LEAST: Final = 1e-40
"""What a log axis shows no value below."""

PANELS: Final = {
    "suboptimality": "suboptimality/relative",
    "distance": "distance/relative",
    "cesaro": "suboptimality/cesaro",
}
"""By figure the column that is drawn."""
NAMES: Final = {
    "suboptimality": "Relative suboptimality",
    "distance": "Relative squared distance to the solution",
    "cesaro": "Suboptimality of the averaged iterate",
}


def theory_figures(lines: Sequence[MethodCurve], name: str, width: str = "page") -> Iterator[NamedFigure]:
    """Per problem the curves of all methods; of those with a bound also distance and averaged iterates beside it."""
    if width not in WIDTHS:
        raise UserError(f"--width: {width!r}; {expected(width, WIDTHS)}")
    return one_at_a_time(_all(lines, name, WIDTHS[width]))


def _all(lines: Sequence[MethodCurve], name: str, inches: float) -> Iterator[NamedFigure]:
    for title, members in by_problem([line for line in lines if not line.is_lost]):
        looks = _looks(members)
        for kind, column in PANELS.items():
            shown = members if kind == "suboptimality" else [one for one in members if _bound(one, kind)]
            if not shown:
                continue
            data = pd.concat([curve_data(line, kind) for line in shown], ignore_index=True)
            figure = Figure(figsize=(inches, min(4.5, max(2.4, 0.5 * inches))))
            plot_theory(data, figure.subplots(), axis_label(column), looks)
            counts = sorted(set(data["n"]))
            n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
            about = f"{drawable(name)}: {drawable(title, 200)}"
            text = f"{about}; mean and band of ± std, {equals('n', n)}"
            caption = (
                f"{NAMES[kind]}, {in_unicode(axis_label(column))}, over the iterations ({title}): mean over n = {n} "
                "seeds, the band is ± one sample std, dotted lines are the bounds of the theorems."
            )
            words = re.sub(r"[ ,=]+", "-", title)
            yield titled(figure_name(f"{kind}-{words}", {}), figure, data, text, caption)


def curve_data(line: MethodCurve, kind: str) -> pd.DataFrame:
    """What is drawn of a line: columns method, step, n, mean, std, bound (NaN where the paper claims none)."""
    column = PANELS[kind]
    means = line.means
    steps = means.index.to_numpy(dtype=float)
    frame = pd.DataFrame(
        {
            "method": line.label,
            "step": steps,
            "n": line.counts.to_numpy(),
            "mean": means[column].to_numpy(),
            "std": line.stds[column].to_numpy(),
            "bound": np.nan,
        }
    )
    gap, distance = line.start
    if kind != "cesaro":
        frame = pd.concat([frame.iloc[:1].assign(step=0.0, mean=1.0, std=0.0), frame], ignore_index=True)
    statement = _bound(line, kind)
    if statement is not None:
        bound = line.curve(statement, frame["step"].to_numpy())
        # By smoothness f(x) - f* <= L ||x - x*||^2 / 2: the theorem's bound of the distance bounds f too.
        scale = {"suboptimality": line.problem.L / 2 / gap, "distance": 1 / distance, "cesaro": 1.0}[kind]
        frame["bound"] = bound * scale
    return frame


def plot_theory(
    data: pd.DataFrame, ax: Axes | None = None, label: str = "", looks: dict[str, dict[str, Any]] | None = None
) -> Axes:
    """Mean against the step on a log axis with a band of one std; a dotted line of the same colour is the bound.

    `data` has the columns of `curve_data`.
    """
    ax = axes_of(ax)
    looks = looks or _looks_of(list(dict.fromkeys(data["method"])))
    for method, rows in data.groupby("method", sort=False):
        look = looks[str(method)]
        drawn = rows[rows["mean"] > LEAST]
        spread = drawn["std"].fillna(0.0)
        low = np.maximum(drawn["mean"] - spread, drawn["mean"] * 1e-2)  # a log axis has no room below 0
        ax.plot(drawn["step"], drawn["mean"], label=drawable(str(method)), markevery=0.12, **look)
        ax.fill_between(drawn["step"], low, drawn["mean"] + spread, color=look["color"], alpha=0.18, linewidth=0)
        if rows["bound"].notna().any():
            ax.plot(rows["step"], rows["bound"], color=look["color"], linestyle=BOUND, linewidth=1.3)
    if data["bound"].notna().any():
        ax.plot([], [], color="0.3", linestyle=BOUND, linewidth=1.3, label="bound of its theorem")
    ax.set_yscale("log")
    ax.set(xlabel="iteration", ylabel=label)
    return ax


def _bound(line: MethodCurve, kind: str) -> Statement | None:
    """The statement whose bound stands in a figure."""
    wanted = "cesaro" if kind == "cesaro" else "rate"
    return next((one for one in line.statements if one.kind == wanted), None)


def _looks(lines: Sequence[MethodCurve]) -> dict[str, dict[str, Any]]:
    return _looks_of([line.label for line in lines])


def _looks_of(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By label colour, dash and marker: told apart in grey too."""
    return {
        label: {**look_at(at), "linestyle": DASHES[at % len(DASHES)], "markersize": 4}
        for at, label in enumerate(labels)
    }
