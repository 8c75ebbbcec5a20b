"""The image's files, and commands to their end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from packaging.version import Version

from tests.support.project import ROOT

DOCKER = ROOT / "docker"
BIN = Path(sys.executable).parent
USER = 10001


def locked(path: Path) -> dict[str, tuple[Version, list[str]]]:
    """Version and hashes by name; fails on a line that is anything else."""
    found = {}
    for entry in path.read_text().replace("\\\n", " ").splitlines():
        name_version, *hashes = entry.split()
        name, version = name_version.split("==")
        assert name not in found
        found[name] = (Version(version), [hash_.removeprefix("--hash=sha256:") for hash_ in hashes])
    return found


def call(*command: str | Path, timeout: float = 900, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run to the end; where `check`, a failure shows what was printed."""
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert not check or done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done
