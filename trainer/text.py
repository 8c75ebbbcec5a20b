"""Text from files and users as it may be shown: no control characters, no endless values. Imports nothing."""

from __future__ import annotations

import re
from typing import Any, Final

LONGEST: Final = 80  # characters of a value within an error message

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1: escape sequences of a terminal
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"  # marks that turn the direction of text; line separators
    "\ud800-\udfff]"  # half characters, which no encoding has
)


def printable(text: str) -> str:
    r"""The text with control characters written out, as `\x1b`: nothing in it steers a terminal. Newlines stay."""
    return _CONTROL.sub(_written_out, text)


def one_line(text: str) -> str:
    r"""As `printable`, newlines and tabs written out too: what stands in a cell, a label or a message of one line."""
    return printable(text).replace("\n", r"\n").replace("\t", r"\t")


def brief(value: Any, longest: int = LONGEST) -> str:
    """A value as an error message names it, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out whole numbers of thousands of digits
        return f"a {type(value).__name__} of thousands of digits"
    if len(text) <= longest:
        return text
    if isinstance(value, int):
        return f"a whole number of {len(text.lstrip('-'))} digits"
    return f"{text[:longest]}... ({len(text)} characters)"


def shortened(text: str, width: int) -> str:
    """The text in at most `width` characters, cut in the middle: names differ at their ends."""
    if len(text) <= width:
        return text
    if width < 2:
        return text[:width]
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def first_line(error: BaseException | str) -> str:
    """The first line of what an error says; the name of its class if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def last_line(error: BaseException | str) -> str:
    """The last line of what an error says, where a traceback has its cause; empty if it says nothing."""
    return (str(error).strip().splitlines() or [""])[-1]


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
