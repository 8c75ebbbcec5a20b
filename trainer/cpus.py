"""How many CPU cores this process may use: by its affinity and its control group's quota, not what the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc/self/cgroup")
CGROUPS: Final = Path("/sys/fs/cgroup")


def usable_cpus(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Cores that stacks can be given: at least 1. Half a core of a quota of 2.5 is not given to anybody.

    `proc` lists the process's control groups, `cgroups` is where they are mounted (version 1 or 2).
    """
    return max(1, min([_by_affinity(), *map(int, _quotas(proc, cgroups))]))


def _by_affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    count = getattr(os, "process_cpu_count", os.cpu_count)()  # macOS has no affinity
    return int(count or 1)


def _quotas(proc: Path, cgroups: Path) -> Iterator[float]:
    """In cores, the quota of every control group that the process is in, and of those around them."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            for folder in _around(cgroups, group):
                yield from _quota(folder / "cpu.max")
        elif "cpu" in controllers.split(","):
            for folder in _around(cgroups / controllers, group) + _around(cgroups / "cpu", group):
                yield from _quota(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _around(mount: Path, group: str) -> list[Path]:
    """The folders of a group and of those around it; inside a container the group's path may be that of the host."""
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return [mount.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _quota(*files: Path) -> Iterator[float]:
    """The quota in cores; nothing if a file is missing or sets no limit."""
    try:
        quota, period = " ".join(file.read_text() for file in files).split()
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return
