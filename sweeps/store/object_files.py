"""The Store's files in an object store: every write is one PUT, on S3 on a condition."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import fsspec
import fsspec.asyn

from polysweep.sweeps.store.files import Fence, Files, StoreError, UnreadableError

_ONE_PUT: Final = 2 * 2**30
"""Files of up to twice so many bytes are written with one PUT; only a single PUT can be conditional."""


class ObjectFiles(Files):
    """An object store. Endpoint and credentials come from the environment, as its client reads them."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = root.rstrip("/")
        options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
        if root.startswith("s3"):
            options["max_concurrency"] = 1  # else s3fs asks for the size before each read, and lists where it is absent
            options["config_kwargs"] = {"connect_timeout": 5, "read_timeout": 10, "retries": {"max_attempts": 1}}
        self._fs, _ = fsspec.core.url_to_fs(root, **options)
        self._fs.retries = 1  # s3fs would try again five times before we do

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes | UnreadableError | None]:
        """In parallel; what fails is read again by itself."""
        asked = list(paths)
        answers: Mapping[str, Any] = {}
        if len(asked) > 1:
            with suppress(Exception):
                answers = self._fs.cat([self.path(path) for path in asked], on_error="return")
        by_path = {self._fs._strip_protocol(self.path(path)): path for path in asked}
        contents = {by_path[k]: value for k, value in answers.items() if isinstance(value, bytes) and k in by_path}
        return {path: contents[path] if path in contents else self._read_or_error(path) for path in asked}

    def _is_its_own(self, error: Exception) -> bool:
        return type(error).__module__.partition(".")[0] in ("botocore", "aiobotocore", "aiohttp", "fsspec", "asyncio")

    def _is_for_good(self, error: Exception) -> bool:
        return super()._is_for_good(error) or type(error).__name__ in ("NoCredentialsError", "ParamValidationError")

    def _read(self, path: str) -> bytes:
        content: bytes = self._fs.cat_file(path)
        return content

    def _write(self, path: str, content: bytes, keep_as: str | None, fence: Fence | None) -> None:
        try:
            if fence is not None and self._is_conditional:
                self._write_if_unchanged(path, content, keep_as, fence)
                return
            if fence is not None and not fence.is_highest():
                raise self._not_ours(path)  # the most that can be done if a PUT cannot be conditional
            address = self.path(path)
            if keep_as is not None and self._fs.exists(address):
                self._fs.cp_file(address, self.path(keep_as))
            self._fs.pipe_file(address, content, chunksize=_ONE_PUT)
        except FileNotFoundError:
            raise StoreError(f"{self.root}: the bucket does not exist") from None

    @property
    def _is_conditional(self) -> bool:
        """Whether a PUT can be conditional on an ETag."""
        return self.root.startswith("s3")

    def _write_if_unchanged(self, path: str, content: bytes, keep_as: str | None, fence: Fence) -> None:
        """A PUT on the condition that the object is what this fence has last seen of it; then what it has replaced."""
        name = posixpath.basename(path)
        before = None if keep_as is None or fence.tags.get(name) is None else self._fs.cat_file(self.path(path))
        while True:
            tag = fence.tags.get(name)
            condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
            try:
                answer = self._fs.pipe_file(self.path(path), content, chunksize=_ONE_PUT, **condition)
            except Exception as error:
                if not _is_refusal(error):
                    raise
                # A successor's, or our own whose answer was lost, or one that came late from a predecessor. The tag is
                # read before the holder is looked up: a successor that claims after that writes another one.
                tag = self._tags(fence.folder).get(name)
                if not fence.is_highest():
                    raise self._not_ours(path) from None
                fence.tags[name] = tag
                continue
            fence.tags[name] = answer["ETag"]
            if keep_as is not None and before is not None:
                self._fs.pipe_file(self.path(keep_as), before, chunksize=_ONE_PUT)
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
            raise StoreError(f"{self.root}: the bucket does not exist") from None
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
        entries: list[dict[str, Any]]
        if not hasattr(self._fs, "_lsdir"):
            entries = self._fs.ls(folder, detail=True)
        else:  # s3fs lists the parent of a folder that does not exist: all trials, for each that has not started.
            entries = fsspec.asyn.sync(self._fs.loop, self._fs._lsdir, self._fs._strip_protocol(folder), refresh=True)
        return entries

    def _remove(self, path: str) -> None:
        self._fs.rm_file(path)


def _is_refusal(error: Exception) -> bool:
    """Whether a conditional PUT found something else than it was meant to replace."""
    words = ("PreconditionFailed", "ConditionalRequestConflict", "At least one of the pre-conditions")
    return isinstance(error, FileExistsError) or any(word in str(error) for word in words)
