"""Folders that belong to a living process: what a killed one has left can be told from them, and removed."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import uuid
from pathlib import Path
from types import TracebackType
from typing import IO, Self


class OwnFolder:
    """A new folder that is locked as long as its process lives, or until it is removed."""

    def __init__(self, parent: Path, prefix: str) -> None:
        """Create `parent/prefix<random>`."""
        while True:
            self.path = parent / f"{prefix}{uuid.uuid4().hex}"
            self.path.mkdir(parents=True, mode=0o700)
            self._lock: IO[str] = (self.path / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if (self.path / "lock").exists():
                return
            self._lock.close()  # somebody has taken it for a leftover before it was locked

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.remove()


def remove_leftovers(parent: Path, prefix: str) -> None:
    """Remove such folders of processes that have ended; those of living ones are locked, and stay."""
    for path in parent.glob(f"{prefix}*/lock"):
        with contextlib.suppress(OSError), path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)
