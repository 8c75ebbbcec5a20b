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


def test_a_process_of_another_machine_or_namespace_is_never_known_to_be_dead() -> None:
    this = Process.this()
    gone = Process(**{**vars(this), "started": this.started + 1})
    assert gone.is_local() and gone.is_dead(), "the pid is another process's by now"
    for other in ({"boot": "another"}, {"boot": ""}, {"namespace": "pid:[1]"}):
        elsewhere = Process(**{**vars(gone), **other})
        assert not elsewhere.is_local() and not elsewhere.is_dead()
    assert str(this) == f"{this.host} (pid {this.pid})"
