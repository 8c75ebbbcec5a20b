"""Processes of a test, as /proc shows them: who descends from whom, who is alive, who is left."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """The live processes that descend from `pid`."""
    return _below({pid}, _parents())


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    return _fields(pid)[0] not in "ZX"


def command_of(pid: int) -> str:
    """The command line, empty where there is none any more."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


class Household:
    """All processes that a command has started, also those that outlive it or leave its process group.

    `look` finds the new ones: call it often while the command runs. A process that nobody has looked at in time is
    found by `mark`, `NAME=value` in the environment that the command was given and its descendants inherit.
    """

    def __init__(self, pid: int, mark: str) -> None:
        self._known = {pid: _started(pid)}
        self._mark = mark.encode()

    def look(self) -> None:
        """Note what descends from those that are known."""
        for pid in _below(self._alive(), _parents()):
            self._known.setdefault(pid, _started(pid))

    def alive(self, name: str = "") -> list[int]:
        """Those that live, and have `name` in their command line."""
        return sorted(pid for pid in self._alive() if name in command_of(pid))

    def left(self) -> dict[int, str]:
        """The command lines of those that live, after a search of all environments for the mark."""
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                    self._known.setdefault(int(folder.name), _started(int(folder.name)))
        return {pid: command_of(pid)[:120] for pid in self._alive()}

    def signal(self, number: int) -> None:
        """To all that live."""
        for pid in self._alive():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End all that live."""
        self.look()
        self.signal(signal.SIGKILL)

    def _alive(self) -> set[int]:
        return {pid for pid, started in list(self._known.items()) if started and started == _started(pid)}


def _below(roots: set[int], parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in roots | found} - found:
        found |= more
    return found


def _parents() -> dict[int, int]:
    """By live process its parent."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        state, parent, *_ = _fields(int(folder.name))
        if state not in "ZX":
            found[int(folder.name)] = int(parent)
    return found


def _started(pid: int) -> int:
    """Clock ticks after boot at which a live process started; 0 where there is none."""
    fields = _fields(pid)
    return int(fields[19]) if fields[0] not in "ZX" else 0


def _fields(pid: int) -> list[str]:
    """What follows the name in /proc/N/stat: state, parent, ...; those of a dead one where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ["X", "0"]


def own_network() -> None:
    """Move the calling process into a network namespace of its own with only loopback, where that is allowed.

    Elsewhere nothing happens, and Ray listens on loopback anyway.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000) != 0:  # CLONE_NEWNET
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(sock, 0x8914, request)  # SIOCSIFFLAGS


def as_from_a_terminal(isolated: bool) -> None:
    """In a child: no signal is ignored, as it is below `nohup` or in a script's background."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if isolated:
        own_network()


def kill_group(process: subprocess.Popen[str]) -> None:
    """SIGKILL the process and everything in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
