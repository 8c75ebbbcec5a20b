"""Values are text wherever they are shown: on a terminal, in Markdown, in LaTeX, in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import logging
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.spreadsheet import to_csv
from polysweep.analysis.tables.writers import Table, latex_escaped, markdown
from polysweep.sweeps.commands.printing import _starting, trial_log
from polysweep.sweeps.console import PrintableFormatter, label, print_cells
from polysweep.sweeps.planning.estimate import Estimate
from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.text import brief, one_line, printable, shortened
from tests.support.inprocess import polysweep
from tests.support.made import SPEC, by_lr, sweep

HOSTILE = ("[/]", "[red]x[/red]", "\x1b[2J\x1b[31m", "a\nb", "a|b", "=1+1", "\u202eabc", "\x9b31m", "\rover", "\ud800")


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


def test_errors_and_logs_of_a_trial_steer_no_terminal(tmp_path: Path) -> None:
    """What a user's own code raises, and whoever writes into a shared Store."""
    runs = sweep(tmp_path, lambda c: "failed" if c.seed == 2 else by_lr(c)).runs
    store = Store(str(tmp_path))
    victim = runs[runs["outcome"] == "failed"]["trial_id"].iloc[0]
    record = store.record(victim) or {}
    session = {
        "process": "host\x1b[2J (pid 1)",
        "started": 0,
        "from_epoch": 0,
        "provenance": {"device_model": "\x1b[31m"},
    }
    store.write_record(
        victim,
        {
            **record,
            "error": "Traceback\nValueError: \x1b]0;title\x07 [/]",
            "notes": ["\x1b[31m"],
            "sessions": [session],
        },
    )
    assert "\x1b" in "\n".join(trial_log(store, victim)), "it is there, and the printing takes it out"
    code, out, _ = polysweep("logs", "made", victim, "--store", tmp_path)
    assert code == 0 and r"ValueError: \x1b]0;title\x07 [/]" in out and r"host\x1b[2J" in out
    for command in (["status"], ["table"]):
        assert polysweep(command[0], "made", "--store", tmp_path, *command[1:])[0] == 0


def test_a_user_error_is_one_line_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from polysweep import cli

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["polysweep", "status", "\x1b[31m\nno", "--store", str(tmp_path)])
        patch.setattr(cli.signal, "signal", lambda *_: None)
        with pytest.raises(SystemExit) as caught:
            cli.main()
    assert caught.value.code == 2 and capsys.readouterr().err.startswith(r"error: no sweep '\x1b[31m\nno'")


# Plans.

BAYES = {
    **SPEC, "method": "bayes", "run_cap": 12, "tuned": [], "variants": [{"scheduler": {"value": "polyak"}}],
    "parameters": {**SPEC["parameters"], "rho": {"min": 0.1, "max": 0.4}},  # type: ignore[dict-item]
}  # fmt: skip


def test_a_plan_of_a_bayes_sweep_says_what_is_to_be_proposed(tmp_path: Path) -> None:
    path = tmp_path / "searched.yaml"
    path.write_text(json.dumps(BAYES))
    code, out, _ = polysweep("plan", path, "--store", tmp_path / "none")
    assert code == 0
    assert "0 stacks would start; then bayes proposes 4 points, each a stack of K = 3" in out
    assert "time and cost: not known before the first of 4 points is proposed" in out and "nothing left" not in out


def test_an_estimate_beyond_any_calendar_is_in_years() -> None:
    base = {"device": "a CPU", "unit": "core", "stacks": 1, "known": 1, "trials": 1, "slots": 1, "spent_hours": 0.0}
    for hours, text in (
        (1.5, "about 1:30:00 with"),
        (30.0, "about 1 day, 6:00:00 with"),
        (1e300, "about 1.14e+296 years"),
    ):
        assert text in str(Estimate(**base, wall_hours=hours, device_hours=hours))  # type: ignore[arg-type]


def test_log_lines_steer_no_terminal() -> None:
    line = PrintableFormatter().format(logging.makeLogRecord({"msg": "failed: %s", "args": ("\x1b[2J",)}))
    assert line == r"failed: \x1b[2J"


def test_a_plan_says_how_much_of_its_stacks_is_padding() -> None:
    spec = SweepSpec.parse(json.dumps({**SPEC, "launch": {"stack": 16}}), "made.yaml")
    assert _starting(plan(spec, {})) == "2 stacks would start, of K = 16 (8 of their 32 rows are padding)"


def test_a_plan_of_42_cells_is_42_lines_and_a_summary(tmp_path: Path) -> None:
    rhos = {"values": [round(0.01 * n, 2) for n in range(1, 22)]}
    path = tmp_path / "wide.yaml"
    path.write_text(json.dumps({**SPEC, "parameters": {**SPEC["parameters"], "rho": rhos}}))  # type: ignore[dict-item]
    code, out, _ = polysweep("plan", path, "--store", tmp_path / "none")
    lines = out.splitlines()
    assert code == 0 and sum("rho=" in line for line in lines) == 42 and len(lines) == 42 + 11
    assert "all" in lines[-5] and "252" in lines[-5]


# Formats.


def test_no_text_breaks_a_markdown_table() -> None:
    rows = [["name", "value"], *([text, "1"] for text in (*HOSTILE, "a\\|b", "\\", "a\r\nb", "`|`"))]
    lines = markdown(Table(rows[0], rows[1:])).splitlines()
    assert len(lines) == len(rows) + 1
    for line in lines:
        unescaped = line.replace("\\\\", "").replace("\\|", "")
        assert unescaped.count("|") == 3, line


def test_latex_shows_every_sign_as_it_is_in_one_line() -> None:
    assert latex_escaped("a<b>|c\n\n\x1b$_") == (
        r"a\textless{}b\textgreater{}\textbar{}c\textbackslash{}n\textbackslash{}n\textbackslash{}x1b\$\_"
    )


def test_a_text_cell_is_no_formula_in_a_spreadsheet_and_a_number_stays_one() -> None:
    texts = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "plain", "-0.5", "1e-4", 'a,"b"\nc']
    frame = pd.DataFrame({"=name": texts, "number": [-0.5, 1, 2, 3, 4, 5, 6, 7, 8, float("nan")]})
    frame["kind"] = pd.Categorical(["=a", "b"] * 5)
    head, *rows = csv.reader(io.StringIO(to_csv(frame)))
    assert head == ["'=name", "number", "kind"]
    assert [row[0] for row in rows[:6]] == ["'=1+1", "'+cmd|' /C calc'!A0", "'-2+3", "'@SUM(A1)", "'\t=1", r"'\x0d=1"]
    assert [row[0] for row in rows[6:]] == ["plain", "-0.5", "1e-4", 'a,"b"\nc']
    assert [row[1] for row in rows[:2]] == ["-0.5", "1.0"] and {row[2] for row in rows} == {"'=a", "b"}
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(to_csv(frame[["number"]]))), frame[["number"]])


def test_the_csv_of_a_table_holds_no_formula(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    pulled.runs["scheduler"] = pulled.runs["scheduler"].replace({"polyak": '=HYPERLINK("http://x")'})
    text = render(select(pulled), "csv")
    assert "\"'=HYPERLINK(" in text and ",=" not in text and ',"=' not in text
