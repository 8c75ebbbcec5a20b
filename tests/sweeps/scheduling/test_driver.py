"""A launch is refused before Ray is started if a stack cannot run, and it says why it ended."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.specs import GOOD

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_more_cores_than_there_are_is_refused_before_ray_is_started(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(GOOD + "launch: {cpus: 4096}\n")
    answer = run_here("launch", "file.yaml")
    assert answer.returncode == 2 and "launch.cpus: 4096" in answer.stderr and "Traceback" not in answer.stderr
