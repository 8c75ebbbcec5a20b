"""Text as it may be shown: control characters written out, and the line of an error that says most."""

from __future__ import annotations

import pytest

from polysweep.trainer.text import first_line, last_line, one_line, printable


def test_control_characters_are_written_out_as_python_writes_them() -> None:
    text = "a\tb\n\x1b[31m\r\x7f\x9b\u202e\ud800é"
    assert printable(text) == "a\tb\n" + r"\x1b[31m\x0d\x7f\x9b\u202e\ud800é"
    assert one_line(text) == r"a\tb\n\x1b[31m\x0d\x7f\x9b\u202e\ud800é"


@pytest.mark.parametrize(
    ("error", "first", "last"),
    [
        ("\n  Traceback\n  line 3\nKeyError: 'x'\n", "Traceback", "KeyError: 'x'"),
        (ValueError("one\ntwo"), "one", "two"),
        (ValueError(" \n"), "ValueError", ""),
        (KeyError(), "KeyError", ""),
    ],
)
def test_the_first_line_names_the_error_and_the_last_has_its_cause(
    error: BaseException | str, first: str, last: str
) -> None:
    assert (first_line(error), last_line(error)) == (first, last)
