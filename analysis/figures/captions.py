"""What figures say of themselves: the title above, and the sentence below in a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.wording import (
    axis_label,
    drawable,
    equals,
    field_label,
    field_words,
    in_unicode,
    settings,
    settings_in_words,
    shortened,
)
from polysweep.trainer.history import is_accuracy

RADIUS: Final = in_unicode(field_label("rho"))
CAP: Final = in_unicode(field_label("gamma_b"))


def title(selection: Selection, values: Mapping[str, Any], about: str) -> str:
    """The sweep, the settings that all of a figure share, what is drawn, and whether the test set chose."""
    of = ", ".join(part for part in (drawable(selection.pulled.protocol.name), settings(values)) if part)
    return f"{of}: {about}{chosen_on(selection)}"


def sentence(what: str, values: Mapping[str, Any], numbers: str) -> str:
    """What is shown, of which runs, and what the numbers are."""
    of = f" ({shortened(settings_in_words(values), 200)})" if values else ""
    return f"{what[:1].upper()}{what[1:]}{of}: {numbers}."


def metric_words(selection: Selection) -> str:
    """The reported metric in a sentence."""
    return in_unicode(axis_label(selection.metric))


def chosen_on(selection: Selection) -> str:
    """Whether the test set chose."""
    return ", selected on test" if selection.on_test else ""


def n_of(cells: pd.DataFrame) -> str:
    """`3`, or `2 to 3`."""
    low, high = (cells["n"].min(), cells["n"].max()) if len(cells) else (0, 0)
    return str(low) if low == high else f"{low} to {high}"


def facts(selection: Selection, cells: pd.DataFrame, what: str = "mean and band of ±\N{NO-BREAK SPACE}std") -> str:
    """What the numbers of a figure are, for its title."""
    return f"{selection.epoch} epoch, {what}, {equals('n', n_of(cells))}"


def means(selection: Selection, cells: pd.DataFrame, mark: str = "band") -> str:
    """What the numbers of a figure are, for its caption."""
    lost = "; a cross marks diverged seeds" if (cells["diverged"] > 0).any() else ""
    return (
        f"mean over n = {n_of(cells)} seeds at the {selection.epoch} epoch{chosen_on(selection)}, "
        f"{band(selection.metric, mark)}{lost}"
    )


def band(column: str, mark: str = "band") -> str:
    """What the band, or the bar, around a mean is."""
    return f"the {mark} is ± one sample std" + (", cut off at 0 and 100 %" if is_accuracy(column) else "")


def one_line_per(fields: Sequence[str]) -> str:
    """What a line is."""
    return f"one line per {each(fields)}" if fields else "one line"


def each(fields: Sequence[str]) -> str:
    """The fields that name the lines."""
    return " and ".join(map(field_words, fields)) or "run"


def per_radius(history: pd.DataFrame) -> str:
    """What a panel over the epochs is."""
    return ", one panel per radius" if history["rho"].notna().any() else ""
