"""What is found wrong or strange before a trial is claimed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.specs import GOOD

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_what_may_not_be_meant_is_warned_of(run_here: Run, tmp_path: Path) -> None:
    polyak = GOOD.replace("epochs: {value: 2}", "epochs: {value: 2}\n  momentum: {values: [0.0, 0.9]}")
    assert polyak != GOOD
    (tmp_path / "file.yaml").write_text(polyak)
    answer = run_here("plan", "file.yaml")
    assert answer.returncode == 0
    assert answer.stderr.count("warning: momentum with scheduler polyak: the step size is derived") == 1
