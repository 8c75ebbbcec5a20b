"""Keep a Store as a release writes it, for the tests of the releases after it.

`python -m tests.system.releases.make COMMIT` writes `VERSION-COMMIT.tar.xz` beside this file: the Store, and what the
release's own commands print of it. See README.md.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.support.project import ROOT
from tests.support.results import histories, records
from tests.support.waiting import wait_for

HERE: Final = Path(__file__).parent
SPECS: Final = HERE / "specs"
INTERRUPTED: Final = "interrupted"
EPOCHS_BEFORE: Final = 5  # that the interrupted trial has at least
WANDB: Final = {"ended": "offline"}
"""How a sweep is logged; the others not at all."""
PRINTED: Final = {
    "status.json": ("status", "--json"),
    "table.md": ("table",),
    "table.csv": ("table", "--format", "csv"),
}
"""By the end of a file's name the command whose output it keeps, of every sweep."""


def polysweep(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "polysweep", *arguments]


def launch(name: str, store: Path) -> list[str]:
    return polysweep("launch", f"{name}.yaml", "--store", str(store), "--wandb", WANDB.get(name, "disabled"))


def write_store(store: Path, full: Path) -> None:
    """Launch every sweep; one of them is interrupted in `store`, and runs to its end in `full`."""
    for path in sorted(SPECS.glob("*.yaml")):
        if path.stem != INTERRUPTED:
            subprocess.run(launch(path.stem, store), check=False)  # 1: the trials that fail
    launched = subprocess.Popen(launch(INTERRUPTED, store))
    before = set(records(store))
    wait_for(lambda: any(r["epoch"] >= EPOCHS_BEFORE for i, r in records(store).items() if i not in before), 300)
    launched.send_signal(signal.SIGTERM)
    assert launched.wait(timeout=60) == 128 + signal.SIGTERM
    subprocess.run(launch(INTERRUPTED, full), check=True)


def texts(store: Path, full: Path) -> dict[str, str]:
    """By name what is kept beside the Store: what the commands print of it, and the uninterrupted run."""
    found = {}
    for name in sorted(path.stem for path in SPECS.glob("*.yaml")):
        for ending, (command, *options) in PRINTED.items():
            done = subprocess.run(
                polysweep(command, name, "--store", str(store), *options),
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            found[f"{name}.{ending}"] = done.stdout
    found["full.json"] = json.dumps(histories(full), indent=1)
    return found


def main(commit: str) -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory(prefix="polysweep-") as folder:
        release, store, full = (Path(folder, name) for name in ("release", "store", "full"))
        git = ("git", "-C", ROOT, "worktree")
        subprocess.run([*git, "add", "--detach", release, commit], check=True)
        shutil.copytree(SPECS, Path(folder, "specs"))
        os.environ |= {"PYTHONPATH": str(release), "COLUMNS": "200", "NO_COLOR": "1"}
        os.chdir(Path(folder, "specs"))
        try:
            write_store(store, full)
            kept = texts(store, full)
            show = polysweep("--version")
            version = subprocess.run(show, capture_output=True, text=True, check=True).stdout.split()[1]
        finally:
            subprocess.run([*git, "remove", "--force", release], check=True)
        out = HERE / f"{version}-{commit[:7]}.tar.xz"
        with tarfile.open(out, "w:xz", preset=9) as archive:
            archive.add(store, "store", filter=lambda entry: None if entry.issym() else entry)  # W&B: to its own logs
            for name, text in kept.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
    print(f"{out}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1])
