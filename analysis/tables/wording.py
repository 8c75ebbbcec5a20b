"""Columns, fields and values as a figure says them: in words, with the field's symbols, and as plain text."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from polysweep.analysis.tables.selection import format_value
from polysweep.trainer.history import CORRUPTED, is_accuracy

FIELDS: Final = {
    "rho": r"radius $\rho$",
    "lr": r"step size $\gamma$",
    "lr_min": r"last step size of the cosine",
    "gamma_b": r"cap $\gamma_b$",
}
"""By config field what an axis says; of all others the name, its underscores as spaces."""
SPLITS: Final = {"train": "training", "val": "validation", "test": "test"}
VALUES: Final = {
    "top1": "accuracy, top-1 (%)",
    "top5": "accuracy, top-5 (%)",
    "loss": "loss",
    "ece": "calibration error (%)",
    **{name: f"accuracy, {name} (%)" for name in CORRUPTED},
}
COLUMNS: Final = {
    "ascent_gain": r"ascent gain $f(e) - f(x)$",
    "gamma/mean": r"step size $\gamma$",
    "curvature/loss": r"$f(x)$ on the images measured",
    "curvature/grad_norm": r"$\|g\|$ on the images measured",
    "curvature/trace": "trace of the Hessian",
    "suboptimality": r"$f(x) - f^*$",
    "suboptimality/relative": r"$(f(x) - f^*)\,/\,(f(x^0) - f^*)$",
    "suboptimality/cesaro": r"$f(\bar{x}) - f^*$",
    "distance": r"$\|x - x^*\|^2$",
    "distance/relative": r"$\|x - x^*\|^2\,/\,\|x^0 - x^*\|^2$",
}
"""By history column what its axis says; of a column that is not ours the name."""
MEASURES: Final = {"eigenvalue": "Hessian eigenvalue #", "sam": r"rise of the loss in $\rho$ = #"}
FORMULAS: Final = {
    r"\rho": "\N{GREEK SMALL LETTER RHO}",
    r"\gamma": "\N{GREEK SMALL LETTER GAMMA}",
    r"\|": "‖",
    r"\,": " ",
    r"\bar{x}": "x̄",
    "^*": "*",
    "^2": "²",
    "^0": "⁰",
}
"""What the formulas of the labels consist of, in Unicode."""
LONGEST: Final = 80
"""Characters of a value in a title or a legend; of a longer one the ends and a hash."""


def axis_label(column: str) -> str:
    """What the axis of a metric or a history column says: `test accuracy, top-1 (%)`."""
    split, _, value = column.partition("/")
    if column in COLUMNS:
        return COLUMNS[column]
    if split in SPLITS and value in VALUES:
        return f"{SPLITS[split]} {VALUES[value]}"
    if numbered := re.fullmatch(r"curvature/(eigenvalue|sam)-(.+)", column):
        return MEASURES[numbered[1]].replace("#", numbered[2])
    return drawable(column) + (" (%)" if is_accuracy(column) else "")


def field_label(name: str) -> str:
    """What the axis of a config field says."""
    return FIELDS.get(name) or drawable(name.replace("_", " "))


def field_words(name: str) -> str:
    """A field in a sentence: `weight decay`, `cap`, `radius`."""
    return FIELDS.get(name, name.replace("_", " ")).partition(" $")[0]


def symbol(name: str) -> str:
    r"""A field beside its value: `$\rho$`, `weight decay`."""
    formula = FIELDS.get(name, "").partition(" $")[2]
    return f"${formula}" if formula else drawable(name.replace("_", " "))


def in_unicode(label: str) -> str:
    """An axis' label where no formula is set, such as in HTML."""
    for formula, text in FORMULAS.items():
        label = label.replace(formula, text)
    return re.sub(r"(?<!\\)\$", "", label).replace(r"\$", "$")


def value_text(value: Any) -> str:
    """A field's value: `0` of 0.0, `-` where it does not apply, and never a control character."""
    if isinstance(value, float) and format_value(value) != "-":
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return printable(format_value(value))


def setting(name: str, value: Any) -> str:
    r"""`weight decay 0`, `$\rho$ 0.1`: for a figure, not broken between the two."""
    return f"{symbol(name)} {drawable(value_text(value))}".replace(" ", "\N{NO-BREAK SPACE}")


def equals(name: str, value: Any) -> str:
    """`n = 3`, not broken at the end of a line."""
    return f"{name} = {value}".replace(" ", "\N{NO-BREAK SPACE}")


def settings(values: Mapping[str, Any]) -> str:
    """Several of them, with commas."""
    return ", ".join(setting(name, value) for name, value in values.items())


def settings_in_words(values: Mapping[str, Any]) -> str:
    """`optimizer usam, weight decay 0, cap 10`: without formulas, for a sentence."""
    return ", ".join(f"{field_words(name)} {value_text(value)}" for name, value in values.items())


def printable(text: str) -> str:
    r"""Text in which each character that is not to be seen is written as its escape: `\x1b`, `\t`, `\n`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """A long text as its two ends and four digits of its hash, so that two long ones stay two."""
    if len(text) <= longest:
        return text
    digits = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:4]
    half = (longest - len(digits) - 3) // 2
    return f"{text[:half]}…{text[-half:]} #{digits}"


def drawable(text: str, longest: int = LONGEST) -> str:
    """Any text as matplotlib draws it as it is: no formula begins at a dollar, nothing is left out of a legend."""
    safe = shortened(printable(text), longest).replace("$", r"\$")
    return f" {safe}" if safe.startswith("_") else safe  # a legend leaves out a label that starts with _


def wrapped(text: str, longest: int) -> str:
    """Lines of at most `longest` characters, broken between words; within a word only where it fits in no line."""
    lines: list[str] = []
    for word in textwrap.wrap(text, longest, break_long_words=False, break_on_hyphens=False):
        lines += [word] if len(word) <= longest else _broken(word, longest)
    return "\n".join(lines)


def _broken(line: str, longest: int) -> list[str]:
    """A line with a word that is too long: broken behind one of `_-./,:=` or an unbreakable space, else anywhere."""
    pieces = re.findall(r"(?:[^_\-./,:=\s]|\.(?=\d))+[_\-./,:=\s]*|[_\-./,:=\s]+", line)
    lines = [""]
    for piece in pieces:
        for part in [piece] if len(piece) <= longest else re.findall(rf"(?:\\\$|.){{1,{longest}}}", piece):
            if lines[-1] and len(lines[-1]) + len(part) > longest:
                lines.append("")
            lines[-1] += part
    return [line.strip() for line in lines]
