"""How figures look: colours, markers and dashes that differ in grey too; the style file, for one figure at a time."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import matplotlib.style
import pandas as pd
from matplotlib import colors as named_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE: Final = Path(__file__).with_name("polysweep.mplstyle")
SCHEDULERS: Final = ("constant", "cosine", "polyak", "sps-plus", "decsps", "momo", "ngn")
"""Each has the look of its place in every figure."""
BESIDE: Final = 3
"""The first place of other lines beside a scheduler, unless one of a later place is there."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
DASHES: Final = ("-", "--", "-.", ":")
Look = dict[str, Any]
"""A line's colour, marker and linestyle."""


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Our style while one figure is made or saved; the user's own before and after."""
    with mpl.rc_context():
        mpl.style.use(STYLE)
        yield


def one_at_a_time(steps: Iterator[Any]) -> Iterator[Any]:
    """What an iterator yields, each made in our style; the caller keeps its own between items and at the end."""
    nothing = object()
    while True:
        with styled():
            result = next(steps, nothing)
        if result is nothing:
            return
        yield result


def axes_of(ax: Axes | None) -> Axes:
    """The axes, or new ones of pyplot for None, so that a notebook shows them."""
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt  # here, because it looks for a screen

    return plt.subplots(layout="constrained")[1]


def looks_of(names: Iterable[Any]) -> dict[str, Look]:
    """By name of a line its look: those of the schedulers are the same in every figure. 48 differ."""
    present = [name for name in dict.fromkeys(names) if not pd.isna(name)]
    places = {name: at for at, name in enumerate(SCHEDULERS) if name in present}
    first = max(BESIDE, 1 + max(places.values())) if places else 0
    places |= {name: first + at for at, name in enumerate(name for name in present if name not in SCHEDULERS)}
    return {name: look_at(place) for name, place in places.items()}


def look_at(place: int) -> Look:
    """The look of the line at a place: colour, marker and dash repeat after 24 together, then the marker moves on."""
    return {
        "color": _colors()[place % len(_colors())],
        "marker": MARKERS[(place + place // 24) % len(MARKERS)],
        "linestyle": DASHES[place % len(DASHES)],
    }


def shades(values: pd.Series) -> dict[Any, Look]:
    """By radius a colour from light to dark, a marker and a dash; NaN stands for none."""
    import seaborn as sns  # here, because it takes half a second

    present = in_order(values)
    if values.isna().any():
        present.append(math.nan)
    colors = sns.color_palette("crest", len(present))
    return {value: {**look_at(at), "color": colors[at]} for at, value in enumerate(present)}


def in_order(values: pd.Series) -> list[Any]:
    """The distinct values: numbers by size, then words by the alphabet."""
    present = list(dict.fromkeys(values.dropna().tolist()))
    return [*sorted(v for v in present if is_number(v)), *sorted((v for v in present if not is_number(v)), key=str)]


def is_number(value: Any) -> bool:
    """Whether a value has a place on an axis of numbers: finite, and not a flag."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


@cache
def _colors() -> list[tuple[float, float, float]]:
    cycle = mpl.rc_params_from_file(STYLE, use_default_template=False)["axes.prop_cycle"]
    return [named_colors.to_rgb(color) for color in cycle.by_key()["color"]]
