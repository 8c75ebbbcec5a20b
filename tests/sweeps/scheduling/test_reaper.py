"""What a launch leaves behind is known by its mark, and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from polysweep.sweeps.scheduling import reaper
from tests.support.ending import mark as mark
from tests.support.ending import running, said


@pytest.mark.parametrize("in_order", [True, False])
def test_what_a_launch_leaves_behind_is_killed_also_what_does_not_hear(
    mark: str, tmp_path: Path, in_order: bool
) -> None:
    folder, own = tmp_path / "session", uuid.uuid4().hex
    folder.mkdir()
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    environment = {**os.environ, reaper.MARK: own}
    left = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, text=True, env=environment)
    assert said(left) == "up"
    command = [sys.executable, "-IS", reaper.__file__, own, folder, "0.1"]
    guard = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE)
    assert guard.stdin is not None and left.stdout is not None
    assert left.poll() is None, "not before the launch is over"
    if in_order:
        guard.stdin.write(b"\n")
    guard.stdin.close()
    assert left.wait(30) == -signal.SIGKILL
    assert guard.wait(30) == 0 and not folder.exists()
    left.stdout.close()


def test_a_process_is_known_by_the_mark_in_its_environment_and_dead_as_a_zombie() -> None:
    own = uuid.uuid4().hex
    child = running({reaper.MARK: own})
    try:
        assert reaper.marked(own) == {child.pid: f"{' '.join(child.args)} "} and reaper.is_alive(child.pid)
        assert reaper.marked(own, "ANOTHER_VARIABLE") == {}
        reaper.kill([child.pid])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not reaper.is_alive(child.pid), "it is a zombie until its parent asks for it"
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == -signal.SIGKILL
