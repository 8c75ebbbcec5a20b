"""Trials of an own part whose source has changed without a new version."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from polysweep.trainer.components import plugins
from tests.support.lab import lab as lab
from tests.support.project import TINY
from tests.support.results import records

Run = Callable[..., subprocess.CompletedProcess[str]]

NET = """
from torch import nn
from polysweep import declare

@declare(version={version})
def small(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, {width}), nn.ReLU(), nn.Linear({width}, classes))
"""


def write(lab: Path, *, width: int, version: int = 1) -> None:
    """The module as another process would find it."""
    (lab / "steps.py").write_text(NET.format(width=width, version=version))
    sys.modules.pop("steps", None)
    plugins._own.cache_clear()


def test_a_changed_source_is_named_with_both_hashes_until_its_version_is_raised(
    lab: Path, launch_here: Run, run_here: Run
) -> None:
    values = {**TINY, "model": "steps:small"}
    spec = {"name": "s", "parameters": {key: {"value": value} for key, value in values.items()}, "seeds": 2}
    (lab / "s.yaml").write_text(json.dumps(spec))
    write(lab, width=8)
    answer = launch_here("s.yaml", "--store", "store")
    assert answer.returncode == 0 and "another source" not in answer.stderr
    provenances = [record["provenance"] for record in records(lab / "store").values()]
    before = provenances[0]["sources"]["model"]
    assert [one["sources"] for one in provenances] == [{"model": before}] * 2

    write(lab, width=9)
    now = plugins.component("model", "steps:small").source
    line = (
        f"warning: model 'steps:small', version 1: 2 trials were trained with another source of it ({before}, now "
        f"{now}); raise its version if its numbers have changed"
    )
    for command in (run_here, launch_here):
        options = ("plan",) if command is run_here else ()
        answer = command(*options, "s.yaml", "--store", "store")
        assert answer.returncode == 0 and answer.stderr.splitlines() == [line]
    write(lab, width=9, version=2)
    assert "another source" not in run_here("plan", "s.yaml", "--store", "store").stderr

    (lab / "steps.py").unlink()
    sys.modules.pop("steps", None)
    plugins._own.cache_clear()
    status = json.loads(run_here("status", "s", "--store", "store", "--json").stdout)
    assert status["counts"]["finished"] == 2, "without the part"
    answer = run_here("plan", "s.yaml", "--store", "store")
    assert answer.returncode == 2 and "model: 'steps:small': cannot import steps" in answer.stderr
