"""The Store's files, on a local or shared file system or in an object store, through the same few calls.

Every write is atomic and durable: a reader sees the old file or the new one, also after a crash. Locally that is a
temporary file, fsync, rename and fsync of the folder; in an object store one PUT. `create` is exclusive: locally by a
hard link, or by `O_EXCL` on a file system without links; by `If-None-Match: *` in an object store.

What the holder of a claim writes goes through a `Fence`: once a successor has raised one of a higher generation, the
storage itself refuses it. Locally the temporary files are in a folder of the fence, which the successor removes, so
that the rename fails; in an object store every write is conditional on the ETag of what it replaces (`If-Match`).
"""

from __future__ import annotations

import errno
import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from polysweep.trainer.errors import UserError
from polysweep.trainer.plain_file import NotPlainError
from polysweep.trainer.text import brief

T = TypeVar("T")
log = logging.getLogger("polysweep.store")
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 5.0
_FOR_GOOD: Final = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
    errno.EEXIST, errno.ENXIO,
}  # fmt: skip
"""Errors that waiting does not fix."""
FENCE: Final = ".fence-"


class StoreError(UserError):
    """A Store that cannot be used: the message names the path."""


class NewerFormatError(StoreError):
    """A file of a version of polysweep that is newer than this one."""

    def __init__(self, path: str, format_: int, newest: int) -> None:
        super().__init__(
            f"{path} has format {brief(format_)}, this version of polysweep reads up to {newest}: install a newer one"
        )


class UnreadableError(StoreError):
    """A file or folder that cannot be read for a reason of its own: others may be fine; waiting does not help."""


class OutOfReachError(StoreError):
    """A Store that has failed for as long as it is waited for."""


class NotOursError(StoreError):
    """A write that came too late: the trial is another process's by now."""


@dataclass
class Fence:
    """What the writes of one claim go through, until one of a higher generation is raised in the same folder."""

    folder: str  # that it is about
    generation: int
    is_highest: Callable[[], bool]  # asked only after the storage has refused a write
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    tags: dict[str, str | None] = field(default_factory=dict)  # object store: by file its ETag; None: it is not there

    @property
    def path(self) -> str:
        """Local: the folder of its temporary files."""
        return f"{self.folder}/{FENCE}{self.generation}-{self.token}"


class Files(ABC):
    """What a Store needs of a file system. `patience` is how many seconds a call is repeated while it fails."""

    root: str
    patience: float = 0.0

    def __init__(self) -> None:
        self.gives_up: Callable[[], bool] = lambda: False  # asked while waiting: whether to wait no longer
        self._failing: dict[str, float] = {}  # by action, since when every call of that kind has failed

    def read(self, path: str) -> bytes | None:
        """A file's content, None if it does not exist. Raises `UnreadableError` if it is not a plain file."""
        try:
            return self._patiently(path, "read", lambda: self._read(self.path(path)))
        except FileNotFoundError:
            return None

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes | UnreadableError | None]:
        """The contents of many files, in as few round trips as possible; the error of one that is not a plain file."""
        return {path: self._read_or_error(path) for path in paths}

    def _read_or_error(self, path: str) -> bytes | UnreadableError | None:
        try:
            return self.read(path)
        except UnreadableError as error:
            return error

    def stamps(self, paths: Iterable[str]) -> dict[str, str]:
        """By path a stamp that changes when the file is replaced; absent files are left out."""
        asked = list(paths)
        return self._patiently("", "looked at", lambda: self._stamps(asked))

    def write(self, path: str, content: bytes, *, keep_as: str | None = None, fence: Fence | None = None) -> None:
        """Replace a file.

        What it replaces stays under the name `keep_as`, if that is given; at no moment is `path` absent. Raises
        `NotOursError` if a fence of a higher generation than `fence` has been raised.
        """
        try:
            self._patiently(path, "written", lambda: self._write(path, content, keep_as, fence))
        except FileNotFoundError:
            if fence is not None:
                raise self._not_ours(path) from None
            raise StoreError(f"{self.path(path)}: cannot be written: its folder cannot exist") from None

    def _not_ours(self, path: str) -> NotOursError:
        return NotOursError(f"{self.path(path)}: another process has taken over")

    def prepare_fence(self, fence: Fence) -> None:
        """What has to be there before the claim is made that the fence belongs to."""
        self._patiently(fence.folder, "written", lambda: self._prepare_fence(fence))

    def raise_fence(self, fence: Fence) -> None:
        """Once its claim is made: from now on writes through fences of lower generations are refused.

        In an object store that holds for a file as soon as it has been written through this fence.
        """
        self._patiently(fence.folder, "written", lambda: self._raise_fence(fence))

    def drop_fence(self, fence: Fence) -> None:
        """Remove it; writes through it are refused from then on."""
        with suppress(OSError, StoreError):
            self._drop_fence(fence)

    def remove_leftovers(self, folder: str, *, fences: bool = False) -> None:  # noqa: B027  # an object store has none
        """Remove temporary files in a folder that killed writers have left."""

    def create(self, path: str, content: bytes) -> bool:
        """Create a file, with its content at once; False if it exists.

        `content` should be unique: if an answer was lost, it tells whether the file is ours.
        """
        try:
            is_new = self._patiently(path, "created", lambda: self._create(self.path(path), content))
        except FileNotFoundError:
            raise StoreError(f"{self.path(path)}: cannot be written: its folder cannot exist") from None
        return is_new or self.read(path) == content

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        return self._patiently(path, "looked for", lambda: self._exists(self.path(path)))

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none if it does not exist."""
        try:
            return sorted(self._patiently(folder, "listed", lambda: self._names(self.path(folder))))
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        """Remove a file that may be absent."""
        with suppress(FileNotFoundError):
            self._patiently(path, "removed", lambda: self._remove(self.path(path)))

    def path(self, path: str) -> str:
        """The whole path or address of a file."""
        return f"{self.root}/{path}"

    def _patiently(self, path: str, action: str, call: Callable[[], T]) -> T:
        """The call's answer; while it fails for a reason that may pass, it is repeated.

        The patience of one outage is spent once: calls after that are tried, and not repeated until one has succeeded.

        Raises `OutOfReachError` if it fails for longer than `patience`, `StoreError` if waiting cannot help;
        `FileNotFoundError` is an answer.
        """
        began, wait = time.monotonic(), FIRST_WAIT
        while True:
            try:
                answer = call()
            except (FileNotFoundError, StoreError):
                raise
            except Exception as error:
                if not isinstance(error, OSError) and not self._is_its_own(error):
                    raise
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                what = f"{self.path(path)}: cannot be {action}: {reason}"
                if self._is_for_good(error):
                    kind = UnreadableError if action in ("read", "listed") else StoreError
                    raise kind(what) from None
                is_first = action not in self._failing
                since = min(began, self._failing.setdefault(action, began))
                if time.monotonic() - since + wait > self.patience or self.gives_up():
                    raise OutOfReachError(what) from None
                if is_first:  # once for the whole outage
                    log.warning("%s; trying again", what)
            else:
                self._failing.pop(action, None)
                return answer
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _is_for_good(self, error: Exception) -> bool:
        return isinstance(error, PermissionError | NotPlainError) or getattr(error, "errno", None) in _FOR_GOOD

    def _is_its_own(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether it is an error of the file system and not a mistake of the program."""
        return False

    @abstractmethod
    def _read(self, path: str) -> bytes: ...

    @abstractmethod
    def _write(self, path: str, content: bytes, keep_as: str | None, fence: Fence | None) -> None:
        """Paths are those of the Store. `FileNotFoundError` through a fence: it has been taken away."""

    @abstractmethod
    def _prepare_fence(self, fence: Fence) -> None: ...

    @abstractmethod
    def _raise_fence(self, fence: Fence) -> None: ...

    @abstractmethod
    def _drop_fence(self, fence: Fence) -> None: ...

    @abstractmethod
    def _create(self, path: str, content: bytes) -> bool:
        """False if the file exists."""

    @abstractmethod
    def _stamps(self, paths: list[str]) -> dict[str, str]: ...

    @abstractmethod
    def _exists(self, path: str) -> bool: ...

    @abstractmethod
    def _names(self, folder: str) -> list[str]: ...

    @abstractmethod
    def _remove(self, path: str) -> None: ...
