"""What the commands print steers no terminal, and a cell is one line."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from polysweep.sweeps.console import PrintableFormatter, bar, label, print_cells
from polysweep.trainer.text import brief, one_line, printable, shortened
from tests.support.texts import HOSTILE


@pytest.mark.parametrize("text", HOSTILE)
def test_no_character_of_a_text_steers_a_terminal(text: str) -> None:
    shown = one_line(text)
    assert shown.isprintable() and shown.encode("utf-8")
    assert printable("plain é \U0001f600\tand\nlines") == "plain é \U0001f600\tand\nlines"


def test_long_values_are_cut_in_the_middle_and_messages_stay_short() -> None:
    assert shortened("abcdefghij", 10) == "abcdefghij" and shortened("abcdefghijk", 10) == "abcde…hijk"
    assert [len(shortened("x" * 99, width)) for width in (0, 1, 2, 3, 50)] == [0, 1, 2, 3, 50]
    assert brief(10**400) == "a whole number of 401 digits" and "thousands of digits" in brief(10**5000)
    assert brief("ab") == "'ab'" and len(brief("x" * 10**6)) < 120 and len(brief([1] * 10**5)) < 120


def _printed(cells: list[dict[str, object]], width: int, *, terminal: bool) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, legacy_windows=False)
    rows = [(cell, ["10", "3", "0.9"]) for cell in cells]
    print_cells("made: 20 trials", ("trials", "new", "best test/top1"), rows, ["20", "6", ""], console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("width", [80, 120])
def test_a_cell_is_one_line_however_long_its_names_are(width: int) -> None:
    cells: list[dict[str, object]] = [
        {
            "scheduler": f"my_lab.rules_of_a_long_name:Scheduler{index}",
            "rho": 0.1,
            "task_options.matrix": text,
            "lr": 0.001,
        }
        for index, text in enumerate(HOSTILE * 4)
    ]
    lines = _printed(cells, width, terminal=True)
    assert len(lines) == len(cells) + 7, "a title, borders, the header and a line for all"
    assert max(map(len, lines)) <= width
    assert all(f"r{index}" in line for index, line in enumerate(lines[4:44])), "names differ at their ends"
    assert "all" in lines[-2] and "20" in lines[-2]


def test_elsewhere_than_on_a_terminal_nothing_is_cut() -> None:
    name = "my_lab.rules:" + "x" * 300
    assert any(f"scheduler={name} " in line for line in _printed([{"scheduler": name}], 80, terminal=False))


def test_markup_in_a_value_is_shown_as_it_is() -> None:
    text = "\n".join(_printed([{"a": "[/]"}, {"a": "[red]x[/red]"}, {"a": "\x1b[31m"}], 100, terminal=True))
    assert "a=[/]" in text and "a=[red]x[/red]" in text and r"a=\x1b[31m" in text
    assert label({"a": "b\nc", "[b]": 1}) == r"a=b\nc [b]=1" and label({}) == "(all parameters fixed)"


def test_log_lines_steer_no_terminal() -> None:
    line = PrintableFormatter().format(logging.makeLogRecord({"msg": "failed: %s", "args": ("\x1b[2J",)}))
    assert line == r"failed: \x1b[2J"


def test_a_bar_is_drawn_on_a_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("histories") as progress:
        progress(1, 2)
    assert capsys.readouterr() == ("", "")
