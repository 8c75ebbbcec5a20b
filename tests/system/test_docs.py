"""The Python of docs/analysis.md runs as it stands, in order, on a sweep called `example`."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from tests.support.made import by_lr, sweep
from tests.support.project import ROOT

DOCS = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")


def test_the_blocks_of_the_analysis_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    assert len(blocks) == 7
    sweep(tmp_path / "polysweep-store", by_lr, name="example")
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/analysis.md", "exec"), names)
    plt.close("all")
    printed = capsys.readouterr().out
    assert "90.00 +- 1.00" in printed and "polyak over constant by 5.00" in printed and "tab:usam_32_100_0.5" in printed


def test_the_page_names_every_command_of_the_analysis() -> None:
    from polysweep.analysis.commands import app

    for command in app.registered_commands:
        assert command.callback is not None and f"polysweep {command.callback.__name__} " in DOCS


def test_every_command_of_the_analysis_has_its_help() -> None:
    from typer.testing import CliRunner

    from polysweep.analysis.commands import app

    for command in app.registered_commands:
        assert command.callback is not None
        answer = CliRunner().invoke(app, [command.callback.__name__, "--help"])
        assert answer.exit_code == 0 and "Usage" in answer.output, answer.output
