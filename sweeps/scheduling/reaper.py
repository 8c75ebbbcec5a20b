"""Ends what a launch's own Ray leaves behind, whatever has become of the launch.

Ray's agents outlive a killed raylet by a minute. This process waits for the end of its input, which is the end of the
launch, and then kills every process that carries the launch's mark in its environment. It is run as a file, without
site packages, so that it costs a few milliseconds and a few megabytes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

MARK: Final = "POLYSWEEP_LAUNCHER"
"""The variable of the environment that marks the processes of one launch."""
GRACE_SECONDS: Final = 3.0
"""For workers of a launch that was killed: the epoch that they are storing."""
LONGEST_SECONDS: Final = 60.0


def marked(mark: str, variable: str = MARK) -> dict[int, str]:
    """By pid, the command lines of the living processes that carry the mark; none if there is no /proc."""
    wanted = f"{variable}={mark}".encode()
    command_lines = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return {}
    for pid in pids:
        try:
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                command_lines[pid] = line.decode(errors="replace")
        except OSError:  # another user's, or gone
            continue
    return command_lines


def is_alive(pid: int) -> bool:
    """Whether the process exists, and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(pids: Iterable[int]) -> None:
    """SIGKILL to every one."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def main(mark: str, folder: str, patience: float = GRACE_SECONDS) -> None:
    """Wait for the launch's end; a byte before it means that Ray has been shut down cleanly."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are the launch's; it ends, and then this does
    grace = 0.0 if os.read(0, 1) else patience
    ended = time.monotonic()
    while (left := marked(mark)) and time.monotonic() - ended < LONGEST_SECONDS:
        if time.monotonic() - ended >= grace:
            kill(left)
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
