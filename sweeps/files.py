"""The Store's files, on a local or shared file system or in an object store, through the same few calls.

Every write is atomic and durable: a reader sees the old file or the new one, also after a crash. Locally that is a
temporary file, fsync, rename and fsync of the folder; in an object store one PUT. `create` is exclusive: by a hard link
locally, by `If-None-Match: *` in an object store.
"""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import fsspec
import fsspec.asyn

from trainer.registry import UserError

T = TypeVar("T")
log = logging.getLogger("polysweep.store")
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 5.0
_FOR_GOOD: Final = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
    errno.EEXIST,
}  # fmt: skip
"""Errors that waiting does not mend."""


class StoreError(UserError):
    """A Store that cannot be used: the message names the path."""


class OutOfReachError(StoreError):
    """A Store that has failed for as long as it is waited for."""


class NotOursError(StoreError):
    """A write that came too late: the trial is another process's by now."""


def open_files(root: str) -> Files:
    """The files below `root`: a path, or an address such as `s3://bucket/folder`.

    Raises `StoreError` for what is no such address.
    """
    if not root or "::" in root:
        raise StoreError(f"store {root!r}: expected the path of a folder, or an address such as s3://bucket/folder")
    try:
        protocol = fsspec.core.split_protocol(root)[0] or "file"
        if protocol in ("file", "local"):
            return LocalFiles(str(fsspec.core.url_to_fs(root)[1]))
        if protocol not in ("s3", "s3a", "gs", "gcs", "abfs", "az"):
            raise StoreError(f"store {root!r}: {protocol!r} is no file system for a Store; use a path or s3://")
        if not urlsplit(root).netloc:
            raise StoreError(f"store {root!r}: the bucket is missing; expected s3://bucket/folder")
        return ObjectFiles(root)
    except UserError:
        raise
    except Exception as error:  # each file system of fsspec has its own
        raise StoreError(f"store {root!r}: {error}") from None


class Files(ABC):
    """What a Store needs of a file system. `patience` is how many seconds a call is repeated while it fails."""

    root: str
    patience: float = 0.0

    def __init__(self) -> None:
        self.gives_up: Callable[[], bool] = lambda: False  # asked while waiting: whether to wait no longer
        self._failing: dict[str, float] = {}  # by action, since when every call of that kind has failed

    def read(self, path: str) -> bytes | None:
        """A file's content, None where there is no such file."""
        try:
            return self._patiently(path, "read", lambda: self._read(self.path(path)))
        except FileNotFoundError:
            return None

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes | None]:
        """The contents of many files, in as few round trips as there can be."""
        return {path: self.read(path) for path in paths}

    def stamps(self, paths: Iterable[str]) -> dict[str, str]:
        """By path something that is another once a file has been replaced; files that are not there are left out."""
        asked = list(paths)
        return self._patiently("", "looked at", lambda: self._stamps(asked))

    def write(
        self, path: str, content: bytes, *, keep_as: str | None = None, still: Callable[[], bool] = lambda: True
    ) -> None:
        """Replace a file.

        What it replaces stays under the name `keep_as`, where that is given; at no moment is `path` absent. Before each
        attempt `still()` says whether the writer may write; raises `NotOursError` where not.
        """

        def attempt() -> None:
            if not still():
                raise NotOursError(f"{self.path(path)}: another process has taken over")
            self._write(self.path(path), content, kept)

        kept = None if keep_as is None else self.path(keep_as)
        try:
            self._patiently(path, "written", attempt)
        except FileNotFoundError:
            raise StoreError(f"{self.path(path)}: cannot be written: there can be no such folder") from None

    def create(self, path: str, content: bytes) -> bool:
        """Create a file, with its content at once; False where it exists.

        `content` should be like no other's: where an answer was lost, it tells whether the file is ours.
        """
        try:
            made = self._patiently(path, "created", lambda: self._create(self.path(path), content))
        except FileNotFoundError:
            raise StoreError(f"{self.path(path)}: cannot be written: there can be no such folder") from None
        return made or self.read(path) == content

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        return self._patiently(path, "looked for", lambda: self._exists(self.path(path)))

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""
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

        Raises `OutOfReachError` where it fails for longer than `patience`, `StoreError` where it fails for good;
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
                    raise StoreError(what) from None
                is_first = action not in self._failing
                since = min(began, self._failing.setdefault(action, began))
                if time.monotonic() - since + wait > self.patience or self.gives_up():
                    raise OutOfReachError(what) from None
                if is_first:  # it says it for all of this outage
                    log.warning("%s; trying again", what)
            else:
                self._failing.pop(action, None)
                return answer
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _is_for_good(self, error: Exception) -> bool:
        return isinstance(error, PermissionError) or getattr(error, "errno", None) in _FOR_GOOD

    def _is_its_own(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether the file system raises it for what is no mistake of the program's."""
        return False

    @abstractmethod
    def _read(self, path: str) -> bytes: ...

    @abstractmethod
    def _write(self, path: str, content: bytes, kept: str | None) -> None: ...

    @abstractmethod
    def _create(self, path: str, content: bytes) -> bool:
        """False where there is such a file."""

    @abstractmethod
    def _stamps(self, paths: list[str]) -> dict[str, str]: ...

    @abstractmethod
    def _exists(self, path: str) -> bool: ...

    @abstractmethod
    def _names(self, folder: str) -> list[str]: ...

    @abstractmethod
    def _remove(self, path: str) -> None: ...


class LocalFiles(Files):
    """A local or shared file system."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = str(Path(root).absolute())  # a worker has another working directory, and no ~

    def _read(self, path: str) -> bytes:
        with open(path, "rb") as file:  # noqa: PTH123  # a third of the time of pathlib's, 10,000 times
            return file.read()

    def _write(self, path: str, content: bytes, kept: str | None) -> None:
        def place(temporary: Path, target: Path) -> None:
            if kept is not None and target.exists():
                link = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
                os.link(target, link)
                link.replace(kept)
                link.unlink(missing_ok=True)  # it stays where `kept` was the same file already
            temporary.replace(target)

        self._put(Path(path), content, place)

    def _create(self, path: str, content: bytes) -> bool:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._put(Path(path), content, os.link)
        except FileExistsError:
            return False
        return True

    def _put(self, target: Path, content: bytes, place: Callable[[Path, Path], None]) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            place(temporary, target)
        finally:
            with suppress(OSError):
                temporary.unlink()
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _stamps(self, paths: list[str]) -> dict[str, str]:
        found = {}
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError):
                seen = os.stat(f"{self.root}/{path}")  # noqa: PTH116
                found[path] = f"{seen.st_mtime_ns}-{seen.st_size}-{seen.st_ino}"
        return found

    def _exists(self, path: str) -> bool:
        return Path(path).exists()

    def _names(self, folder: str) -> list[str]:
        return os.listdir(folder)  # noqa: PTH208

    def _remove(self, path: str) -> None:
        Path(path).unlink()


class ObjectFiles(Files):
    """An object store. Endpoint and credentials come from the environment, as its client reads them."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = root.rstrip("/")
        options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
        if root.startswith("s3"):
            options["config_kwargs"] = {"connect_timeout": 5, "read_timeout": 10, "retries": {"max_attempts": 1}}
        self._fs, _ = fsspec.core.url_to_fs(root, **options)
        self._fs.retries = 1  # s3fs would try again five times before we do

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes | None]:
        """In parallel; what fails is read again by itself."""
        asked = list(paths)
        found: Mapping[str, Any] = {}
        if len(asked) > 1:
            with suppress(Exception):
                found = self._fs.cat([self.path(path) for path in asked], on_error="return")
        by_path = {self._fs._strip_protocol(self.path(path)): path for path in asked}
        known = {by_path[key]: value for key, value in found.items() if isinstance(value, bytes) and key in by_path}
        return {path: known[path] if path in known else self.read(path) for path in asked}

    def _is_its_own(self, error: Exception) -> bool:
        return type(error).__module__.partition(".")[0] in ("botocore", "aiobotocore", "aiohttp", "fsspec", "asyncio")

    def _is_for_good(self, error: Exception) -> bool:
        return super()._is_for_good(error) or type(error).__name__ in ("NoCredentialsError", "ParamValidationError")

    def _read(self, path: str) -> bytes:
        content: bytes = self._fs.cat_file(path)
        return content

    def _write(self, path: str, content: bytes, kept: str | None) -> None:
        if kept is not None and self._fs.exists(path):
            self._fs.cp_file(path, kept)
        try:
            self._fs.pipe_file(path, content)
        except FileNotFoundError:
            raise StoreError(f"{self.root}: there is no such bucket") from None

    def _create(self, path: str, content: bytes) -> bool:
        try:
            self._fs.pipe_file(path, content, mode="create")
        except FileExistsError:
            return False
        except FileNotFoundError:
            raise StoreError(f"{self.root}: there is no such bucket") from None
        except Exception as error:
            if "ConditionalRequestConflict" in str(error):  # two at once, and the other one was faster
                return False
            raise
        return True

    def _stamps(self, paths: list[str]) -> dict[str, str]:
        """One listing of all that lies below what they share: a request per thousand files, not one per file."""
        if not paths:
            return {}
        shared = posixpath.commonpath([posixpath.dirname(path) for path in paths])
        listed = self._fs.find(self.path(shared), detail=True)
        by_path = {self._fs._strip_protocol(self.path(path)): path for path in paths}
        return {
            by_path[key]: f"{one.get('ETag')}-{one.get('LastModified')}-{one.get('size')}"
            for key, one in listed.items()
            if key in by_path
        }

    def _exists(self, path: str) -> bool:
        return bool(self._fs.exists(path))

    def _names(self, folder: str) -> list[str]:
        if not hasattr(self._fs, "_lsdir"):
            return [str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in self._fs.ls(folder, detail=False)]
        # s3fs lists the parent of a folder that does not exist: all trials, for each that has not started.
        found = fsspec.asyn.sync(self._fs.loop, self._fs._lsdir, self._fs._strip_protocol(folder), refresh=True)
        return [str(entry["name"]).rstrip("/").rsplit("/", 1)[-1] for entry in found]

    def _remove(self, path: str) -> None:
        self._fs.rm_file(path)
