"""What a command answers."""

from __future__ import annotations

import subprocess


def assert_user_error(answer: subprocess.CompletedProcess[str], *words: str) -> None:
    assert answer.returncode == 2, answer.stdout + answer.stderr
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    for word in words:
        assert word in answer.stderr


def assert_user_error_after_start(answer: subprocess.CompletedProcess[str], *words: str) -> None:
    assert answer.returncode == 2, answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr
    for word in words:
        assert word in answer.stderr
