"""The Store's files on a local or shared file system."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from polysweep.sweeps.store.files import FENCE, Fence, Files, StoreError
from polysweep.trainer.plain_file import read_plain_file

LARGEST: Final = 2**30
"""Bytes of a file that is read at once, checkpoints aside. A damaged file system shows sizes of terabytes."""


_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
"""What a file system without hard links answers to one."""
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{32}")
LEFTOVER_SECONDS: Final = 3600.0
"""Age of a temporary file that no living process can be writing: a write that waits begins a new one."""


class LocalFiles(Files):
    """A local or shared file system."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = str(Path(root).absolute())  # a worker has another working directory, and no ~

    def _read(self, path: str) -> bytes:
        try:
            return read_plain_file(path, None if path.endswith(".pt") else LARGEST)
        except NotADirectoryError:  # a stray file instead of a trial's folder: the record does not exist
            raise FileNotFoundError(path) from None

    def _write(self, path: str, content: bytes, keep_as: str | None, fence: Fence | None) -> None:
        target = Path(self.path(path))
        aside = target.parent if fence is None else Path(self.path(fence.path))

        def place(temporary: Path, target: Path) -> None:
            if keep_as is not None and target.exists():
                copy = aside / f".{target.name}.{uuid.uuid4().hex}"
                try:
                    os.link(target, copy)
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    shutil.copyfile(target, copy)
                copy.replace(self.path(keep_as))
                copy.unlink(missing_ok=True)  # it stays if `keep_as` was the same file already
            temporary.replace(target)

        if fence is None:
            target.parent.mkdir(parents=True, exist_ok=True)
        self._put(target, content, place, aside)

    def _create(self, path: str, content: bytes) -> bool:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._put(target, content, os.link, target.parent)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._create_without_links(target, content)
        return True

    def _create_without_links(self, target: Path, content: bytes) -> bool:
        """A reader may see the file before its content, or for ever without it if its writer dies in between."""
        try:
            file = target.open("xb")
        except FileExistsError:
            return False
        try:
            with file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                target.unlink()
            raise
        self._sync_folder(target.parent)
        return True

    def _put(self, target: Path, content: bytes, place: Callable[[Path, Path], None], aside: Path) -> None:
        temporary = aside / f".{target.name}.{uuid.uuid4().hex}"
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            place(temporary, target)
        finally:
            with suppress(OSError):
                temporary.unlink()
        self._sync_folder(target.parent)

    def _sync_folder(self, path: Path) -> None:
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _prepare_fence(self, fence: Fence) -> None:
        Path(self.path(fence.path)).mkdir(parents=True, exist_ok=True)

    def _raise_fence(self, fence: Fence) -> None:
        """Every holder of a lower generation made its folder before its claim, so all of them are seen here."""
        for name in os.listdir(self.path(fence.folder)):  # noqa: PTH208
            number = name.removeprefix(FENCE).partition("-")[0]
            if name.startswith(FENCE) and number.isdigit() and int(number) < fence.generation:
                gone = Path(self.path(f"{fence.path}/{uuid.uuid4().hex}"))
                with suppress(FileNotFoundError):
                    Path(self.path(f"{fence.folder}/{name}")).rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        self.remove_leftovers(fence.folder)

    def _drop_fence(self, fence: Fence) -> None:
        shutil.rmtree(self.path(fence.path), ignore_errors=True)

    def remove_leftovers(self, folder: str, *, fences: bool = False) -> None:
        """Those that are older than any write can last; with `fences` also fences, if nobody writes to the folder."""
        with suppress(OSError):
            for entry in os.scandir(self.path(folder)):
                is_fence = fences and entry.name.startswith(FENCE)
                if (is_fence or _TEMPORARY.fullmatch(entry.name)) and _is_old(entry):
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        Path(entry.path).unlink(missing_ok=True)

    def _stamps(self, paths: list[str]) -> dict[str, str]:
        stamps = {}
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError):
                try:
                    status = os.stat(f"{self.root}/{path}")  # noqa: PTH116
                except OSError:  # for example a link to itself; reading it reports that
                    status = os.lstat(f"{self.root}/{path}")
                stamps[path] = f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"
        return stamps

    def _exists(self, path: str) -> bool:
        return Path(path).exists()

    def _names(self, folder: str) -> list[str]:
        return os.listdir(folder)  # noqa: PTH208

    def _remove(self, path: str) -> None:
        Path(path).unlink()


def _is_old(entry: os.DirEntry[str]) -> bool:
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFTOVER_SECONDS


def check_mounted(root: str) -> None:
    """Raise `StoreError` if this process runs in an image and nothing is mounted at the folder or above it."""
    from polysweep.sweeps.store.provenance import image

    folder = Path(root).resolve()
    if image() is not None and not any(map(os.path.ismount, [folder, *folder.parents][:-1])):
        raise StoreError(
            f"store {root!r} is a folder of the container and would be lost with it: mount a volume or a folder of the "
            "host there (--volume polysweep-store:/store), or name a bucket (s3://bucket/folder)"
        )


def users_apart(root: str) -> str:
    """Where this process's user may not write the folder: in words, who that is and whose it is; else empty."""
    folder = _existing(root)
    if os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_RDONLY:
        return ""
    status = folder.stat()
    return (
        f"; this process is user {os.geteuid()} of group {os.getegid()}, {folder} belongs to user {status.st_uid} of "
        f"group {status.st_gid} (mode {stat.S_IMODE(status.st_mode):o})"
    )


def _existing(root: str) -> Path:
    """The folder, or the one in which it would be made."""
    return next(path for path in (Path(root), *Path(root).parents) if path.exists())
