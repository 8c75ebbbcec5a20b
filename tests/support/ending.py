"""What tests of an end share: processes that can be told from all others, and launches that last."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.scheduling import reaper
from tests.support.processes import as_from_a_terminal
from tests.support.project import ROOT

Begin = Callable[..., "subprocess.Popen[str]"]
MARK = "POLYSWEEP_TEST"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What every process that descends from this test has in its environment; what is left of them is killed."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("SPT_NOENV", "1")  # as for the launch's own mark
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield mark
    reaper.kill(living(mark))


def living(mark: str) -> dict[int, str]:
    """By pid, the test's processes."""
    return reaper.marked(mark, MARK)


@pytest.fixture
def begin(mark: str, tmp_path: Path) -> Iterator[Begin]:
    """Start Python as the head of a process group."""
    started: list[subprocess.Popen[str]] = []

    def begin_python(*arguments: str | Path, isolated: bool = False) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=partial(as_from_a_terminal, isolated),
        )
        started.append(process)
        return process

    yield begin_python
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


SMALL: dict[str, Any] = {"seeds": 1, "tuned": [], "variants": [{"scheduler": {"value": "polyak"}}]}
LASTING: dict[str, Any] = {**SMALL, "parameters": {
    "task": {"value": "digits"}, "model": {"value": "resnet8"}, "optimizer": {"value": "usam"}, "rho": {"value": 0.1},
    "batch_size": {"value": 256}, "epochs": {"value": 400}}}  # fmt: skip


def running(environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process that waits, with more in its environment. Popen returns before /proc has that: it says so itself."""
    waits = [sys.executable, "-IS", "-c", "print('up', flush=True); input()"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(waits, env={**os.environ, **environment}, **pipes)
    assert said(process) == "up"
    return process


def said(process: subprocess.Popen[str]) -> str:
    """The next line of its output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
