"""The project that is under test: its folder, its command, a copy of it, and a small trial."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POLYSWEEP = Path(sys.executable).with_name("polysweep")
TINY = {
    "task": "digits",
    "model": "mlp",
    "optimizer": "usam",
    "scheduler": "polyak",
    "rho": 0.1,
    "batch_size": 256,
    "epochs": 3,
}
VENV = Path(sys.executable).parent.parent


def copy_of_the_project(folder: Path) -> Path:
    """What git tracks or would, with this environment as its .venv."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in listed:
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    fresh = (VENV / "installed").exists() and (VENV / "installed").stat().st_mtime >= (
        ROOT / "pyproject.toml"
    ).stat().st_mtime
    assert fresh, "run `make test`: the pasted `make quickstart` would install into this environment"
    (folder / ".venv").symlink_to(VENV)
    return folder
