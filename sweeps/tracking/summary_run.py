"""The run that has the plots of a W&B report: one per sweep and project, a step each time, and never a trial."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from polysweep.trainer.errors import UserError
from polysweep.trainer.folders import OwnFolder
from polysweep.trainer.wandb_client import Fault, Run, close_run, in_time, open_run
from polysweep.trainer.wandb_runs import FOLDER

PREFIX: Final = "polysweep-report-"
"""How its id begins; that of a trial is 16 hex digits."""
JOB_TYPE: Final = "report"
MOST_IDS: Final = 9


@dataclass(frozen=True)
class Plot:
    """An image for a run: the key under which panels find it, its PNG, its caption."""

    key: str
    png: bytes
    caption: str


def is_summary(run_id: str) -> bool:
    """Whether a run is one of these, and so no trial."""
    return run_id.startswith(PREFIX)


def summary_ids(first: str) -> Iterator[str]:
    """The ids that it may have: the first, and those that follow where runs were deleted."""
    yield first
    yield from (f"{first}-{number}" for number in range(2, MOST_IDS + 1))


def send_plots(run: Run, plots: Iterable[Plot]) -> str:
    """Log plots to the run as one more step; returns its id. Panels show the last step, and earlier ones on demand.

    The server never gives the id of a deleted run away again: then `-2` is appended, `-3`, and so on.

    Raises `UserError` if the server does not take them.
    """
    all_plots, fault = list(plots), Fault("refused", "")
    for run_id in summary_ids(run.trial_id):
        try:
            with OwnFolder(Path(tempfile.gettempdir()), FOLDER) as own:
                _send(replace(run, trial_id=run_id), all_plots, own.path)
            return run_id
        except Exception as error:
            fault = Fault.of(error)
            if fault.kind != "deleted":
                break
    raise UserError(f"the plots cannot be uploaded: {fault.reason}")


def _send(run: Run, plots: Iterable[Plot], folder: Path) -> None:
    """Raises what the client raises, or `TimeoutError`."""
    from polysweep.sweeps.tracking.upload import UPLOAD_SECONDS

    def send() -> None:
        live = open_run(run, "online", folder, is_upload=True)
        live.log(_images(plots, folder))
        close_run(live, "finished")

    in_time(send, UPLOAD_SECONDS)


def _images(plots: Iterable[Plot], folder: Path) -> dict[str, Any]:
    """By key the image as the client takes it, written to a folder first."""
    import wandb

    images = {}
    for at, plot in enumerate(plots):
        path = folder / f"{at}.png"
        path.write_bytes(plot.png)
        images[plot.key] = wandb.Image(str(path), caption=plot.caption)
    return images
