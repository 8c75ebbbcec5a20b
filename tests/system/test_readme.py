"""Every command of the README and of the pages in docs/ works when pasted: one sweep for all of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.pages import blocks_of, pages
from tests.support.processes import own_network
from tests.support.project import ROOT, copy_of_the_project


def commands(of: Sequence[Path]) -> list[str]:
    """The lines of the pages' bash blocks without their comments, each once."""
    blocks = [block for page in of for block in blocks_of(page, "bash")]
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in dict.fromkeys(lines) if line]


def paste(project: Path, of: Sequence[Path]) -> dict[str, str]:
    """Run every command of the pages in order, with the environment active; by command, what it printed."""
    printed = {}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    environment["PATH"] = f"{project / '.venv/bin'}{os.pathsep}{environment['PATH']}"
    for command in commands(of):
        answer = subprocess.run(
            ["bash", "-c", command], cwd=project, capture_output=True, text=True, timeout=900, check=False,
            env=environment, preexec_fn=own_network,
        )  # fmt: skip
        assert answer.returncode == 0, f"{command}\n{answer.stdout}{answer.stderr}"
        printed[command] = answer.stdout
    return printed


def check(project: Path, printed: dict[str, str]) -> None:
    quickstart = printed["make quickstart"]
    assert "quickstart: 72 finished" in quickstart
    assert "| rho | constant" in quickstart and "\nselected: constant lr=" in quickstart
    for path in (
        "quickstart-plots/robustness.png",
        "quickstart-plots/robustness.svg",
        "quickstart-report.html",
    ):
        assert path in quickstart and (project / path).stat().st_size > 10_000
    launched = printed["polysweep launch sweeps/specs/quickstart.yaml"]
    assert "nothing to start, all 72 trials have ended" in launched
    assert "\\toprule" in printed["polysweep table quickstart --format latex"]


def test_every_command_of_the_readme_works_when_pasted(tmp_path: Path) -> None:
    """With the quickstart cut to one epoch, so that it takes a minute; the long test runs it whole, and all pages."""
    project = copy_of_the_project(tmp_path)
    spec = project / "sweeps/specs/quickstart.yaml"
    text = spec.read_text()
    assert "epochs: {value: 20}" in text
    spec.write_text(text.replace("epochs: {value: 20}", "epochs: {value: 1}"))
    check(project, paste(project, [ROOT / "README.md"]))


@pytest.mark.long
def test_every_command_of_all_pages_works_when_pasted(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    check(project, paste(project, pages()))
