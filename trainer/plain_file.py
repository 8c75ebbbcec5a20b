"""Reading a file that anybody may have put there: never a wait for a FIFO's writer, never an endless device."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class NotPlainError(OSError):
    """What is no plain file, or is larger than what is looked for can be; `strerror` says which."""


def read_plain_file(path: str | Path, largest: int | None = None) -> bytes:
    """The content of a file of at most `largest` bytes.

    Raises `NotPlainError` for anything else, other `OSError` as `open` does, and `ValueError` for a path with a NUL.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # else a FIFO would wait for a writer
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotPlainError(errno.EINVAL, f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'no plain file')}")
        if largest is not None and status.st_size > largest:
            raise NotPlainError(errno.EFBIG, f"it has {status.st_size} bytes, more than {largest}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
