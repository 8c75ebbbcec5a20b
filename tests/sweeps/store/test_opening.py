"""From the address of a Store to its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.local_files import LocalFiles
from polysweep.sweeps.store.object_files import ObjectFiles
from polysweep.sweeps.store.opening import open_files
from polysweep.sweeps.store.store import Store


def test_what_is_no_store_is_named() -> None:
    for root in ("memory://store", "nothing://at/all", "", "s3://", "zip::s3://a/b"):
        with pytest.raises(StoreError, match="store"):
            Store(root)


def test_a_path_is_made_absolute_and_an_address_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    for root, path in (("a/b", f"{tmp_path}/a/b"), (f"file://{tmp_path}/a", f"{tmp_path}/a"), ("~/a", "/home/me/a")):
        files = open_files(root)
        assert isinstance(files, LocalFiles) and files.root == path
    files = open_files("s3://bucket/folder/")
    assert isinstance(files, ObjectFiles) and files.path("a/b") == "s3://bucket/folder/a/b"
    assert not list(tmp_path.iterdir()), "nothing is made before something is written"
