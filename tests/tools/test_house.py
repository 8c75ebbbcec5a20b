"""The house's rules that no linter has: short files, and packages that say what is in them."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tests.support.project import ROOT

LONGEST = 300


def modules(*folders: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return [ROOT / name for name in listed if name.endswith(".py") and (ROOT / name).is_file()]


def test_no_file_is_longer_than_300_lines() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in modules(".")}
    assert len(lengths) > 200
    assert not {path: length for path, length in lengths.items() if length > LONGEST}


@pytest.mark.parametrize("folder", ["trainer", "sweeps", "analysis"])
def test_a_package_is_one_sentence(folder: str) -> None:
    packages = {path.parent for path in modules(folder)}
    assert len(packages) > 5
    for package in packages:
        tree = ast.parse((package / "__init__.py").read_text())
        docstring = ast.get_docstring(tree)
        assert docstring and docstring.endswith(".") and "\n\n" not in docstring, package
        assert len(tree.body) == 1, f"{package} holds more than its sentence"
