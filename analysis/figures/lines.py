"""Lines of a plot: which rows are one, how it looks, its band, and that no two rows stand at one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from polysweep.analysis.data.foreign_fields import OURS
from polysweep.analysis.figures.styles import Look, looks_of
from polysweep.analysis.tables.selection import format_value
from polysweep.analysis.tables.wording import drawable, value_text
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import is_accuracy

NO_NAME: Final = "all runs"
Looks = Mapping[str, Look]


class Line(NamedTuple):
    """The rows of a frame that are one line, how it looks, and what the legend says."""

    label: str
    look: Look
    rows: pd.DataFrame


def line_names(frame: pd.DataFrame, fields: Sequence[str]) -> pd.Series:
    """By row the name of its line: `polyak`, `sam, polyak`; `all runs` where the fields say nothing."""
    columns = [frame[name] for name in fields if name in frame]
    texts = [", ".join(value_text(v) for v in row if format_value(v) != "-") for row in zip(*columns, strict=True)]
    return pd.Series([text or NO_NAME for text in texts] or [NO_NAME] * len(frame), index=frame.index, dtype=object)


def lines_of(frame: pd.DataFrame, fields: Sequence[str], looks: Looks | None = None) -> Iterator[Line]:
    """The lines of a frame, the known schedulers first."""
    names = line_names(frame, fields)
    styles = looks or looks_of(names)
    for name in sorted(dict.fromkeys(names), key=list(styles).index):
        yield Line(drawable(name), styles[name], frame[names == name])


def require_one_each(frame: pd.DataFrame, keys: Sequence[str], plot: str) -> None:
    """Raise `UserError` with what differs where two rows stand at one place."""
    present = [name for name in keys if name in frame]
    twice = frame[frame.duplicated(present, keep=False)] if len(frame) else frame
    if not len(twice):
        return
    first = twice.iloc[0]
    same = twice[
        [all(format_value(row[k]) == format_value(first[k]) for k in present) for row in twice.to_dict("records")]
    ]
    differ = [
        str(name)
        for name in frame.columns
        if name not in OURS and name not in present and same[name].map(format_value).nunique() > 1
    ]
    where = " ".join(f"{name}={value_text(first[name])}" for name in present)
    raise UserError(
        f"{plot}: {len(same)} rows share {where}; they differ in {', '.join(differ) or 'nothing'}: "
        "draw the rows of one table at a time (polysweep.subtables), or name these fields in `lines`"
    )


def band(x: Any, mean: pd.Series, std: pd.Series, metric: str, line: Line, ax: Axes, **change: Any) -> None:
    """A line and one sample std around it, none beyond what the metric can be."""
    low, high = ends(mean, std, metric)
    ax.plot(x, mean * scale_of(metric), label=line.label or None, **{**line.look, **change})
    ax.fill_between(x, low, high, color=line.look["color"], alpha=0.2, linewidth=0)


def ends(mean: Any, std: Any, metric: str) -> tuple[Any, Any]:
    """mean - std and mean + std as drawn: an accuracy in percent, and within 0-100 %."""
    scale, spread = scale_of(metric), np.nan_to_num(np.asarray(std, dtype=float))
    low, high = (np.asarray(mean, dtype=float) - spread) * scale, (np.asarray(mean, dtype=float) + spread) * scale
    return (np.clip(low, 0, 100), np.clip(high, 0, 100)) if is_accuracy(metric) else (low, high)


def legend(ax: Axes) -> Axes:
    if ax.get_legend_handles_labels()[1]:
        ax.legend()
    return ax


def scale_of(metric: str) -> int:
    """100 for an accuracy, which is shown in percent, else 1."""
    return 100 if is_accuracy(metric) else 1


def by_value(frame: pd.DataFrame, name: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """By value of a field, as text, its rows; those of all other values where it is missing."""
    names = line_names(frame, [name])
    for value in dict.fromkeys(names):
        yield value, frame[names == value]
