"""Reading a file that anybody may have put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polysweep.trainer.plain_file import NotPlainError, read_plain_file


def test_a_plain_file_is_read_up_to_its_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\0\xff\r\n1")
    assert read_plain_file(path) == read_plain_file(str(path), 5) == b"\0\xff\r\n1"
    with pytest.raises(NotPlainError) as raised:
        read_plain_file(path, 4)
    assert raised.value.strerror == "it has 5 bytes, more than 4"


def test_neither_a_fifo_nor_a_device_is_waited_for(tmp_path: Path) -> None:
    """No process writes to the FIFO; the device has no end. A link to one is the same."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path, reason in ((tmp_path / "fifo", "it is a FIFO"), (tmp_path / "link", "it is a device")):
        with pytest.raises(NotPlainError) as raised:
            read_plain_file(path)
        assert raised.value.strerror == reason


def test_a_folder_is_named_as_one_and_nothing_stays_open(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(5):
        with pytest.raises(NotPlainError, match="it is a folder"):
            read_plain_file(tmp_path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_what_cannot_be_opened_is_the_error_of_open(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_plain_file(tmp_path / "none")
    with pytest.raises(ValueError, match="null byte"):
        read_plain_file("a\0b")
