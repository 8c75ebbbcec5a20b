"""Every command of the README works when pasted."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from polysweep.sweeps.spec.spec import SweepSpec
from tests.support.processes import own_network
from tests.support.project import ROOT, copy_of_the_project

README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """The lines of the README's bash blocks, without those that run these tests and the benchmarks."""
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    return [line for line in lines if not re.match(r"make (test|test-all|bench)\b", line)]


def paste(project: Path) -> dict[str, str]:
    """Run every command in order; by command, what it printed."""
    printed = {}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of `make test`
    for command in commands():
        answer = subprocess.run(
            ["bash", "-c", command], cwd=project, capture_output=True, text=True, timeout=900, check=False,
            env=environment, preexec_fn=own_network,
        )  # fmt: skip
        assert answer.returncode == 0, f"{command}\n{answer.stdout}{answer.stderr}"
        printed[command.partition("#")[0].strip()] = answer.stdout
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
    launched = printed[".venv/bin/polysweep launch sweeps/specs/quickstart.yaml"]
    assert "nothing to start, all 72 trials have ended" in launched
    assert "\\toprule" in printed[".venv/bin/polysweep table quickstart --format latex"]


def test_every_command_works_when_pasted(tmp_path: Path) -> None:
    """With the quickstart cut to one epoch, so that it takes seconds; the long test runs it whole."""
    project = copy_of_the_project(tmp_path)
    spec = project / "sweeps/specs/quickstart.yaml"
    text = spec.read_text()
    assert "epochs: {value: 20}" in text
    spec.write_text(text.replace("epochs: {value: 20}", "epochs: {value: 1}"))
    check(project, paste(project))


@pytest.mark.long
def test_the_whole_quickstart(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    check(project, paste(project))


def test_the_example_specs_are_valid() -> None:
    grid, bayes = [SweepSpec.parse(text, "README.md") for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)]
    assert (grid.name, len(grid.trials)) == ("example", 2 * 72)
    assert (bayes.name, bayes.points) == ("search", 30)
