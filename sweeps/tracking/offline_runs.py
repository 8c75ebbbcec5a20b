"""Offline runs of W&B: one folder per trial, written whole from a finished history, for `wandb sync` to upload.

`wandb sync` appends whatever a run has to what the server has, so no row may be in two runs that it uploads. The run of
a failed trial therefore stays when the trial is tried again, and the next one holds only the rows after it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from polysweep.trainer.folders import OwnFolder, remove_leftovers
from polysweep.trainer.wandb_client import Run, close_run, log_rows, open_run

ASIDE: Final = ".aside-"
CONTINUED: Final = "continued"
"""A file in the offline run of an attempt that failed: how many rows the run has; the next run continues after them."""


def offline_run(folder: Path, trial_id: str) -> Path | None:
    """The offline run of how a trial ended, None if it is not written yet."""
    return next((path for path in folder.glob(f"offline-run-*-{trial_id}") if not (path / CONTINUED).exists()), None)


def offline_runs(folder: Path) -> set[str]:
    """The trial ids that have one."""
    continued = {path.parent.name for path in folder.glob(f"offline-run-*/{CONTINUED}")}
    names = {path.name for path in folder.glob("offline-run-*")}
    return {_trial_of(name) for name in names - continued}


def mark_continued(run: Path, rows: int) -> None:
    """Note in the offline run of a failed attempt how many rows it has: the next one continues after them."""
    (run / CONTINUED).write_text(f"{rows}\n")


def continued_rows(folder: Path) -> dict[str, int]:
    """By trial id how many rows the offline runs of its failed attempts have."""
    rows: dict[str, int] = {}
    for path in folder.glob(f"offline-run-*/{CONTINUED}"):
        trial_id = _trial_of(path.parent.name)
        rows[trial_id] = max(rows.get(trial_id, 0), int(path.read_text()))
    return rows


def mark_uploaded(folder: Path, trial_ids: Iterable[str]) -> None:
    """Have `wandb sync` leave out the offline runs of trials that the server has, by the file that it writes itself."""
    asked = set(trial_ids)
    for path in folder.glob("offline-run-*/run-*.wandb"):
        if _trial_of(path.parent.name) in asked:
            path.with_name(f"{path.name}.synced").touch()


def write_offline(
    folder: Path, run: Run, history: Sequence[Mapping[str, Any]], outcome: str, ended: float, after: int = 0
) -> Path:
    """Write a trial's run as an offline run below `folder`: aside, then renamed, so it is complete or absent.

    It has the rows of the history after the first `after`. Its name follows from the trial and from when it `ended`
    (seconds since 1970), so that of two writers one wins.
    """
    stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(ended))
    target = folder / f"offline-run-{stamp}-{run.trial_id}"
    if target.exists():
        return target
    with OwnFolder(folder, ASIDE) as aside:
        live = open_run(run, "offline", aside.path)
        log_rows(live, history[after:])
        close_run(live, outcome)
        (written,) = (aside.path / "wandb").glob(f"offline-run-*-{run.trial_id}")
        try:
            written.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise  # else another process was faster
    return target


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes were writing aside."""
    remove_leftovers(folder, ASIDE)


def _trial_of(name: str) -> str:
    return name.rpartition("-")[2]
