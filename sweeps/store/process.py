"""Who holds a claim: a process that can be recognised later, also as dead."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process that can be recognised later: on the same machine and process namespace, also as dead."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def this(cls) -> Process:
        """The calling process."""
        return cls(
            socket.gethostname(),
            _read_text("/proc/sys/kernel/random/boot_id"),
            _namespace(),
            os.getpid(),
            _start_time(os.getpid()),
        )

    def is_dead(self) -> bool:
        """True only if it is certain: same machine, same namespace, and the pid is gone or another process's."""
        return self.is_local() and _start_time(self.pid) != self.started

    def is_local(self) -> bool:
        """Whether it is, or was, on this machine and in this process namespace."""
        here = (_read_text("/proc/sys/kernel/random/boot_id"), _namespace())
        return bool(self.boot) and (self.boot, self.namespace) == here

    def __str__(self) -> str:
        return f"{self.host} (pid {self.pid})"


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start_time(pid: int) -> int:
    """Clock ticks after boot at which the process started; 0 if it does not exist or is a zombie."""
    fields = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if fields and fields[0] not in "ZX" else 0
