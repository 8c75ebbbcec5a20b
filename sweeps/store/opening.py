"""From the address of a Store to its files: a path or an object store."""

from __future__ import annotations

from urllib.parse import urlsplit

import fsspec

from polysweep.sweeps.store.files import Files, StoreError
from polysweep.sweeps.store.local_files import LocalFiles
from polysweep.sweeps.store.object_files import ObjectFiles
from polysweep.trainer.errors import UserError


def open_files(root: str) -> Files:
    """The files below `root`: a path, or an address such as `s3://bucket/folder`.

    Raises `StoreError` for anything else.
    """
    if not root or "::" in root or "\0" in root:
        raise StoreError(f"store {root!r}: expected the path of a folder, or an address such as s3://bucket/folder")
    try:
        protocol = fsspec.core.split_protocol(root)[0] or "file"
        if protocol in ("file", "local"):
            return LocalFiles(str(fsspec.core.url_to_fs(root)[1]))
        if protocol not in ("s3", "s3a", "gs", "gcs", "abfs", "az"):
            raise StoreError(f"store {root!r}: {protocol!r} is not a file system for a Store; use a path or s3://")
        if not urlsplit(root).netloc:
            raise StoreError(f"store {root!r}: the bucket is missing; expected s3://bucket/folder")
        return ObjectFiles(root)
    except UserError:
        raise
    except Exception as error:  # each file system of fsspec has its own
        raise StoreError(f"store {root!r}: {error}") from None
