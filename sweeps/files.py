"""The Store's files, on a local or shared file system or in an object store, through the same few calls.

Every write is atomic and durable: a reader sees the old file or the new one, also after a crash. Locally that is a
temporary file, fsync, rename and fsync of the folder; in an object store one PUT. `create` is exclusive: locally by a
hard link, or by `O_EXCL` on a file system without links; by `If-None-Match: *` in an object store.

What the holder of a claim writes goes through a `Fence`: once a successor has raised one of a higher generation, the
storage itself refuses it. Locally the temporary files lie in a folder of the fence, which the successor takes away, so
that the rename fails; in an object store every write is conditional on the ETag of what it replaces (`If-Match`).
"""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import re
import shutil
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import fsspec
import fsspec.asyn

from trainer.plain_file import NotPlainError, read_plain_file
from trainer.registry import UserError
from trainer.text import brief

T = TypeVar("T")
log = logging.getLogger("polysweep.store")
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 5.0
_FOR_GOOD: Final = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
    errno.EEXIST, errno.ENXIO,
}  # fmt: skip
"""Errors that waiting does not mend."""
LARGEST: Final = 2**30
"""Bytes of a file that is read at once, checkpoints aside. A damaged file system shows sizes of terabytes."""


FENCE: Final = ".fence-"
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
"""What a file system without hard links answers to one."""
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{32}")
LEFTOVER_SECONDS: Final = 3600.0
"""Age of a temporary file that no living process can be writing: a write that waits begins a new one."""


class StoreError(UserError):
    """A Store that cannot be used: the message names the path."""


class NewerFormatError(StoreError):
    """A file of a version of polysweep that is newer than this one."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} has format {brief(found)}, this version of polysweep reads up to {known}: install a newer one"
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


def open_files(root: str) -> Files:
    """The files below `root`: a path, or an address such as `s3://bucket/folder`.

    Raises `StoreError` for what is no such address.
    """
    if not root or "::" in root or "\0" in root:
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


_ONE_PUT: Final = 2 * 2**30
"""Bytes up to twice of which a file is written with one PUT, which alone can be conditional."""


class Files(ABC):
    """What a Store needs of a file system. `patience` is how many seconds a call is repeated while it fails."""

    root: str
    patience: float = 0.0

    def __init__(self) -> None:
        self.gives_up: Callable[[], bool] = lambda: False  # asked while waiting: whether to wait no longer
        self._failing: dict[str, float] = {}  # by action, since when every call of that kind has failed

    def read(self, path: str) -> bytes | None:
        """A file's content, None where there is no such file. Raises `UnreadableError` where that is no plain file."""
        try:
            return self._patiently(path, "read", lambda: self._read(self.path(path)))
        except FileNotFoundError:
            return None

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes | UnreadableError | None]:
        """The contents of many files, in as few round trips as there can be; of one that is no plain file the error."""
        return {path: self._read_or_error(path) for path in paths}

    def _read_or_error(self, path: str) -> bytes | UnreadableError | None:
        try:
            return self.read(path)
        except UnreadableError as error:
            return error

    def stamps(self, paths: Iterable[str]) -> dict[str, str]:
        """By path something that is another once a file has been replaced; files that are not there are left out."""
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
            raise StoreError(f"{self.path(path)}: cannot be written: there can be no such folder") from None

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
        """Leave nothing of it; what is written through it after that is refused."""
        with suppress(OSError, StoreError):
            self._drop_fence(fence)

    def remove_leftovers(self, folder: str) -> None:  # noqa: B027  # an object store has none
        """Remove temporary files in a folder that killed writers have left."""

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
        since, wait = time.monotonic(), FIRST_WAIT
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
                known = self._failing.setdefault(action, since)
                late = time.monotonic() - min(since, known) + wait > self.patience
                if late or self.gives_up():
                    raise OutOfReachError(what) from None
                if known == since:  # the first of this outage says it for all
                    log.warning("%s; trying again", what)
                    self._failing[action] = known - 1e-6  # said
            else:
                self._failing.pop(action, None)
                return answer
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _is_for_good(self, error: Exception) -> bool:
        return isinstance(error, PermissionError | NotPlainError) or getattr(error, "errno", None) in _FOR_GOOD

    def _is_its_own(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether the file system raises it for what is no mistake of the program's."""
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
        try:
            return read_plain_file(path, None if path.endswith(".pt") else LARGEST)
        except NotADirectoryError:  # a stray file in the place of a trial's folder: there is no such record
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
            file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        try:
            os.write(file, content)
            os.fsync(file)
        except OSError:
            with suppress(OSError):
                target.unlink()
            raise
        finally:
            os.close(file)
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

    def _drop_fence(self, fence: Fence) -> None:
        shutil.rmtree(self.path(fence.path), ignore_errors=True)

    def remove_leftovers(self, folder: str) -> None:
        """Those that are older than any write can last, by the file system's own clock."""
        place = Path(self.path(folder))
        with suppress(OSError):
            now = time.time()
            for found in place.iterdir():
                with suppress(OSError):
                    if _TEMPORARY.fullmatch(found.name) and now - found.stat().st_mtime > LEFTOVER_SECONDS:
                        found.unlink()

    def _stamps(self, paths: list[str]) -> dict[str, str]:
        found = {}
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError):
                try:
                    seen = os.stat(f"{self.root}/{path}")  # noqa: PTH116
                except OSError:  # such as a link to itself; the reading names it
                    seen = os.lstat(f"{self.root}/{path}")
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

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes | UnreadableError | None]:
        """In parallel; what fails is read again by itself."""
        asked = list(paths)
        found: Mapping[str, Any] = {}
        if len(asked) > 1:
            with suppress(Exception):
                found = self._fs.cat([self.path(path) for path in asked], on_error="return")
        by_path = {self._fs._strip_protocol(self.path(path)): path for path in asked}
        known = {by_path[key]: value for key, value in found.items() if isinstance(value, bytes) and key in by_path}
        return {path: known[path] if path in known else self._read_or_error(path) for path in asked}

    def _is_its_own(self, error: Exception) -> bool:
        return type(error).__module__.partition(".")[0] in ("botocore", "aiobotocore", "aiohttp", "fsspec", "asyncio")

    def _is_for_good(self, error: Exception) -> bool:
        return super()._is_for_good(error) or type(error).__name__ in ("NoCredentialsError", "ParamValidationError")

    def _read(self, path: str) -> bytes:
        content: bytes = self._fs.cat_file(path)
        return content

    def _write(self, path: str, content: bytes, keep_as: str | None, fence: Fence | None) -> None:
        address = self.path(path)
        if keep_as is not None and self._fs.exists(address):
            self._fs.cp_file(address, self.path(keep_as))
        try:
            if fence is not None and not self._is_conditional and not fence.is_highest():
                raise self._not_ours(path)  # the most that can be done if a PUT cannot be conditional
            if fence is None or not self._is_conditional:
                self._fs.pipe_file(address, content, chunksize=_ONE_PUT)
            else:
                self._write_if_unchanged(path, content, fence)
        except FileNotFoundError:
            raise StoreError(f"{self.root}: there is no such bucket") from None

    @property
    def _is_conditional(self) -> bool:
        """Whether a PUT can be conditional on an ETag."""
        return self.root.startswith("s3")

    def _write_if_unchanged(self, path: str, content: bytes, fence: Fence) -> None:
        """A PUT on the condition that the object is what this fence has last seen of it."""
        name = posixpath.basename(path)
        while True:
            tag = fence.tags.get(name)
            condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
            try:
                answer = self._fs.pipe_file(self.path(path), content, chunksize=_ONE_PUT, **condition)
            except Exception as error:
                if not _is_refusal(error):
                    raise
                # A successor's, or our own whose answer was lost, or one that came late from a predecessor.
                if not fence.is_highest():
                    raise self._not_ours(path) from None
                fence.tags[name] = self._tags(fence.folder).get(name)
                continue
            fence.tags[name] = answer["ETag"]
            return

    def _tags(self, folder: str) -> dict[str, str | None]:
        """By name the ETag of every object in a folder."""
        return {posixpath.basename(one["name"].rstrip("/")): one.get("ETag") for one in self._listed(self.path(folder))}

    def _prepare_fence(self, fence: Fence) -> None:
        pass

    def _raise_fence(self, fence: Fence) -> None:
        fence.tags = self._tags(fence.folder)

    def _drop_fence(self, fence: Fence) -> None:
        pass

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
        return [posixpath.basename(str(one["name"]).rstrip("/")) for one in self._listed(folder)]

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]]
        if not hasattr(self._fs, "_lsdir"):
            found = self._fs.ls(folder, detail=True)
        else:  # s3fs lists the parent of a folder that does not exist: all trials, for each that has not started.
            found = fsspec.asyn.sync(self._fs.loop, self._fs._lsdir, self._fs._strip_protocol(folder), refresh=True)
        return found

    def _remove(self, path: str) -> None:
        self._fs.rm_file(path)


def _is_refusal(error: Exception) -> bool:
    """Whether a conditional PUT found something else than it was meant to replace."""
    words = ("PreconditionFailed", "ConditionalRequestConflict", "At least one of the pre-conditions")
    return isinstance(error, FileExistsError) or any(word in str(error) for word in words)
