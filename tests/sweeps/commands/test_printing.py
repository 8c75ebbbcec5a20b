"""What plans and logs say, and values as text in Markdown, in LaTeX, in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.spreadsheet import to_csv
from polysweep.analysis.tables.writers import Table, latex_escaped, markdown
from polysweep.sweeps.commands.printing import _starting, trial_log
from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from tests.support.inprocess import polysweep
from tests.support.made import SPEC, by_lr, sweep
from tests.support.texts import HOSTILE


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
    assert "made: bayes has proposed 0 of 4 points; 4 to come, each with 3 seeds: 12 trials" in out
    assert "bayes would propose 4 points, each a stack of K = 3" in out and "0 stacks" not in out
    assert "time and cost: no estimate: no finished trial of these stacks" in out and "nothing left" not in out


def test_a_plan_says_how_much_of_its_stacks_is_padding() -> None:
    spec = SweepSpec.parse(json.dumps({**SPEC, "launch": {"stack": 16}}), "made.yaml")
    assert _starting(plan(spec, {})) == "2 stacks would start, of K = 16 (8 of their 32 rows are padding)"


def test_a_plan_of_42_cells_is_42_lines_and_a_summary(tmp_path: Path) -> None:
    rhos = {"values": [round(0.01 * n, 2) for n in range(1, 22)]}
    path = tmp_path / "wide.yaml"
    path.write_text(json.dumps({**SPEC, "parameters": {**SPEC["parameters"], "rho": rhos}}))  # type: ignore[dict-item]
    code, out, _ = polysweep("plan", path, "--store", tmp_path / "none")
    lines = out.splitlines()
    assert code == 0 and sum("rho=" in line for line in lines) == 42 and len(lines) == 42 + 12
    assert "all" in lines[-6] and "252" in lines[-6]


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
