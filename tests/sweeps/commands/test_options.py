"""What several commands take: the Store, and paths that can be none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.inprocess import polysweep
from tests.support.specs import GOOD

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_the_store_comes_from_the_environment(run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYSWEEP_STORE", str(tmp_path / "elsewhere"))
    assert "elsewhere" in run_here("status", "any").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "file.yaml", "--store", "a\0b"),
        ("plan", "file.yaml", "--data-dir", "a\0b"),
        ("table", "name", "--cache", "a\0b"),
        ("plan", "a\0b"),
        ("plot", "name", "--out", "a\0b"),
        ("compare", "name", "--published", "a\0b"),
        ("submit", "file.yaml", "--address", "http://127.0.0.1:9", "--requirements", "a\0b"),
    ],
)
def test_a_nul_in_a_path_is_the_users_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.yaml").write_text(GOOD)
    code, _, err = polysweep(*arguments)
    assert code == 2 and "nul" in err.lower()


def test_the_home_of_nobody_and_files_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(GOOD)
    os.mkfifo(tmp_path / "fifo")
    for arguments, message in (
        (("plan", tmp_path / "file.yaml", "--data-dir", "~nobody-at-all/x"), "--data-dir or POLYSWEEP_DATA: ~nobody"),
        (("compare", "any", "--published", tmp_path / "fifo"), "fifo' cannot be read: it is a FIFO"),
        (("status", "any", "--store", tmp_path / "fifo"), "cannot be listed: Not a directory"),
    ):
        code, _, err = polysweep(*arguments)
        assert code == 2 and message in err and len(err.splitlines()) == 1
