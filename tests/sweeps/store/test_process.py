"""A process is recognised later, also as dead."""

from __future__ import annotations

import subprocess
import sys

from polysweep.sweeps.store.process import Process, _start_time


def test_this_process_is_not_dead_and_a_finished_one_is() -> None:
    assert not Process.this().is_dead()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = Process(**{**vars(Process.this()), "pid": child.pid, "started": _start_time(child.pid)})
    assert not identity.is_dead()
    child.communicate(b"\n")
    assert identity.is_dead()
