"""Axes that every figure can be read by: places of numbers and of words, ticks, and the text of empty ones."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from polysweep.analysis.figures.styles import in_order, is_number
from polysweep.analysis.tables.wording import drawable, value_text

LETTER: Final = 0.085
"""Inches of a letter of a tick's label."""
WIDE: Final = 20
"""Largest over smallest number from which on an axis of positive numbers is logarithmic."""
COUNTS: Final = ("diverged", "failed", "stopped", "missing")


@dataclass(frozen=True)
class Places:
    """Where the values of a field stand on an axis: numbers as they are, words side by side in their order."""

    values: tuple[Any, ...]

    @classmethod
    def of(cls, values: pd.Series) -> Places:
        """The places of all values but those that are missing."""
        return cls(tuple(in_order(values)))

    @property
    def are_numbers(self) -> bool:
        """Whether each value is a number; one word among them makes all of them words."""
        return all(map(is_number, self.values))

    def at(self, values: pd.Series) -> np.ndarray:
        """By value its place."""
        if self.are_numbers:
            return np.asarray(values, dtype=float)
        places = {value: at for at, value in enumerate(self.values)}
        return np.array([places[value] for value in values], dtype=float)

    def set_ticks(self, ax: Axes, *, is_log: bool | None = None) -> None:
        """A tick at each value that there is room for, all of them in view.

        `is_log`: None for a logarithmic axis where they are far apart; never where not all values are positive.
        """
        if not self.values:
            return
        if not self.are_numbers:
            labels = [drawable(value_text(value), 24) for value in self.values]
            turn = 30 if sum(map(len, labels)) > 30 else 0
            ax.set_xticks(range(len(labels)), labels, rotation=turn, ha="right" if turn else "center")
            ax.set_xlim(-0.5, len(labels) - 0.5)
            return
        numbers = np.array(self.values, dtype=float)
        if is_log is None:
            is_log = bool(numbers[0] > 0 and numbers[-1] / numbers[0] > WIDE)
        if is_log and numbers[0] > 0:
            ax.set_xscale("log")
            room = max((numbers[-1] / numbers[0]) ** 0.05, 1.0 if len(numbers) > 1 else 2.0)
            ax.set_xlim(numbers[0] / room, numbers[-1] * room)
            ticks = _thinned(numbers, np.log10(numbers), _inches(ax))
        else:
            space = 0.05 * (numbers[-1] - numbers[0]) or abs(numbers[0]) / 2 or 0.5
            ax.set_xlim(numbers[0] - space, numbers[-1] + space)
            ticks = _thinned(numbers, numbers, _inches(ax))
        ax.set_xticks(ticks, [value_text(one) for one in ticks])
        ax.xaxis.set_minor_locator(NullLocator())


def _thinned(values: np.ndarray, places: np.ndarray, inches: float) -> list[float]:
    """The first value and each whose label has room beside that of the one before it, on an axis of so many inches."""
    texts = [value_text(value) for value in values.tolist()]
    scale = inches / max(float(places[-1] - places[0]), 1e-300)
    kept = [0]
    for at in range(1, len(places)):
        room = (places[at] - places[kept[-1]]) * scale
        if room >= LETTER * ((len(texts[at]) + len(texts[kept[-1]])) / 2 + 1):
            kept.append(at)
    return [float(values[at]) for at in kept]


def _inches(ax: Axes) -> float:
    """About how wide axes are, before they are laid out."""
    figure = ax.get_figure(root=True)
    return float(ax.get_position().width) * (figure.get_figwidth() if figure is not None else 1.0)


def log_y(ax: Axes, values: Sequence[Any] | np.ndarray) -> None:
    """A logarithmic y axis that has ticks with numbers also where the values span less than a decade.

    The axis stays linear if a value is not positive, or without any value.
    """
    numbers = np.asarray(values, dtype=float)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers) or (numbers <= 0).any():
        return
    ax.set_yscale("log")
    low, high = numbers.min(), numbers.max()
    if high / low < 1.01:
        low, high = low / 2, high * 2
        ax.set_ylim(low, high)
    if high / low < 100:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())


def whole_epochs(ax: Axes) -> None:
    """Ticks at whole epochs only."""
    ax.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, min_n_ticks=1))


def say_empty(ax: Axes, reason: str, *, is_percent: bool = False) -> Axes:
    """Write in the middle of axes without data why there is none; in percent they keep their scale."""
    text = textwrap.fill(reason, max(12, int(13 * _inches(ax))))
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", fontsize=8, color="0.3")
    if is_percent:
        ax.set_ylim(0, 100)
    return ax


def why_empty(cells: pd.DataFrame) -> str:
    """Why cells or candidates have no mean: `no finished trial: 12 diverged, 3 missing`."""
    if not len(cells):
        return "nothing to draw: no cell"
    if cells["n"].sum():
        return "no mean yet: runs without a result could change the choice"
    counts = [f"{int(cells[name].sum())} {name}" for name in COUNTS if name in cells and cells[name].sum()]
    return "no finished trial" + (f": {', '.join(counts)}" if counts else "")


def cross(look: Mapping[str, Any], transform: Any, marker: str = "x") -> dict[str, Any]:
    """The look of the mark of a cell that lost seeds."""
    return {
        "linestyle": "none",
        "marker": marker,
        "markersize": 11,
        "markeredgewidth": 2,
        "color": look["color"],
        "transform": transform,
        "clip_on": False,
    }
