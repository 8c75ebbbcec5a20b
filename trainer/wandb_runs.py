"""Weights & Biases: one run per trial, its id the trial id.

The Store is the truth and W&B mirrors it. Online runs are logged epoch by epoch from a background thread, so that a
slow or unreachable server never stops training; offline runs are written whole, see `sweeps.tracking.offline_runs`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import netrc
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from polysweep.trainer.components.sources import sources_text
from polysweep.trainer.errors import UserError
from polysweep.trainer.folders import OwnFolder, remove_leftovers
from polysweep.trainer.wandb_client import (
    EXIT_SECONDS,
    Fault,
    Mode,
    Run,
    abandon_run,
    close_run,
    end_client,
    log_rows,
    open_run,
    require_own_ids,
)

__all__ = ["Mode", "Online", "Run", "describe", "logged_in", "resolve_mode", "run_name"]
GROUP_CHARACTERS: Final = 119
RETRY_SECONDS: Final = 60.0
FOLDER: Final = "polysweep-wandb-"
ORIGIN: Final = "polysweep"
"""The field of a run's config on W&B that says where its numbers come from: commit, versions, device, K."""
log = logging.getLogger("polysweep.tracking")


def resolve_mode(asked: str | None) -> Mode:
    """The mode asked for, else `WANDB_MODE`, else online where W&B is logged in and offline elsewhere.

    Raises `UserError` with the valid modes, and inside a W&B agent unless W&B is disabled.
    """
    source, mode = "--wandb", asked
    if mode is None:
        source, mode = "WANDB_MODE", os.environ.get("WANDB_MODE") or None
    if mode is None:
        mode = "online" if logged_in() else "offline"
    if mode != "disabled":
        require_own_ids()
    for valid in get_args(Mode):
        if mode == valid:
            return valid  # type: ignore[no-any-return]
    raise UserError(f"{source}: unknown mode {mode!r}; expected one of {', '.join(get_args(Mode))}")


def logged_in() -> bool:
    """Whether the W&B client has a key for its server."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    file = os.environ.get("NETRC") or str(Path("~/.netrc").expanduser())
    try:
        host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
        return netrc.netrc(file).authenticators(host) is not None
    except (OSError, ValueError, netrc.NetrcParseError):
        return False


def describe(
    trial_id: str,
    canonical: Mapping[str, Any],
    flat: Mapping[str, Any],
    sweeps: Sequence[str] = (),
    record: Mapping[str, Any] | None = None,
) -> Run:
    """Name, group, job type, tags and config of a trial's run.

    The group is the config without its seed: its non-default fields, cut to 119 characters, then 8 hash digits of all
    of it, so it is the same in every sweep and no two configs share one.

    Args:
        canonical: the config without its defaults, as the Store keeps it.
        flat: the fields in use, options as `model_options.hidden`.
        sweeps: the names of the sweeps that contain the trial.
        record: the trial's record, for where its numbers come from.
    """
    fields = {key: value for key, value in canonical.items() if key != "seed"}
    listing = " ".join(f"{key}={_short(value)}" for key, value in fields.items())
    digest = hashlib.sha256(repr(sorted(fields.items())).encode()).hexdigest()[:8]
    origin = {} if record is None else {ORIGIN: origin_of(record)}
    return Run(
        trial_id,
        run_name(flat),
        f"{listing[:GROUP_CHARACTERS]}-{digest}",
        str(flat["scheduler"]),
        tuple(sorted(sweeps)),
        {**flat, **origin},
    )


def origin_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What besides its config a trial's numbers may depend on, as a run's config has it; what is not known is left out.

    The versions are below `version`, the image is JSON text, the sources of own parts are a line: each is one column of
    `runs` once it is pulled.
    """
    provenance = dict(record.get("provenance") or {})
    versions = provenance.pop("versions", None) or None
    image = provenance.pop("image", None)
    origin = {"width": record.get("width"), **provenance, "version": versions}
    origin["sources"] = sources_text(provenance.get("sources"))
    origin["image"] = None if image is None else json.dumps(image)
    return {key: value for key, value in origin.items() if value is not None}


def run_name(flat: Mapping[str, Any]) -> str:
    """`usam polyak rho=0.1 wd=0.0005 s=0`, with the step size where it is fixed and a cap that is not 1."""
    parts = [str(flat["optimizer"]), str(flat["scheduler"])]
    for name in ("lr", "lr_min", "gamma_b", "rho"):
        value = flat.get(name)
        if value is not None and (name, value) != ("gamma_b", 1.0):
            parts.append(f"{name}={value:g}")
    return " ".join([*parts, f"wd={flat['weight_decay']:g}", f"s={flat['seed']}"])


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass
class _Logged:
    """A trial that is being logged: all of its rows, so that a run which broke off can be opened again."""

    run: Run
    rows: list[Mapping[str, Any]]
    live: Any = None  # the client's run, None while it is not open
    folder: OwnFolder | None = field(default=None, repr=False)

    def drop(self) -> None:
        """Forget the client's run."""
        if self.live is not None:
            abandon_run(self.live)
        self.live = None
        if self.folder is not None:
            self.folder.remove()
            self.folder = None


class Online:
    """Online runs of one process, logged by a thread of their own in the order of the calls.

    A run that the server refuses is not logged any more, with one warning that names it. An unreachable server
    pauses logging: the runs that go on then are opened again, with all their rows, at the earliest `RETRY_SECONDS`
    later. The client may drop rows without a word: the Store has them, and `sweeps.tracking.sync.upload` compares.
    """

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[Callable[..., None], str, tuple[Any, ...]]] = queue.Queue()
        self._trials: dict[str, _Logged] = {}
        self._broken = threading.Event()
        self._again_at = 0.0
        remove_leftovers(Path(tempfile.gettempdir()), FOLDER)
        # A daemon: at the end of the process it is not waited for, however slow the server.
        threading.Thread(target=self._work, name="wandb", daemon=True).start()

    def start(self, run: Run, history: Sequence[Mapping[str, Any]]) -> None:
        """Open or resume the run, and send the rows of `history` that the server lacks."""
        self._submit(self._start, run.trial_id, run, list(history))

    def log(self, trial_id: str, row: Mapping[str, Any]) -> None:
        """Log one epoch."""
        self._submit(self._log_row, trial_id, dict(row))

    def finish(self, trial_id: str, outcome: str) -> None:
        """End the run."""
        self._submit(self._finish, trial_id, outcome)

    def drain(self, timeout: float) -> None:
        """Wait until everything is sent, at most `timeout` seconds."""
        with self._calls.all_tasks_done:
            self._calls.all_tasks_done.wait_for(lambda: not self._calls.unfinished_tasks, timeout)

    def close(self, timeout: float) -> None:
        """`drain`, then end W&B's client, which takes `EXIT_SECONDS` at most; what is left `polysweep sync` uploads."""
        self.drain(timeout)
        end_client(EXIT_SECONDS)

    @property
    def is_broken(self) -> bool:
        """Whether the server could not be reached when it was last tried."""
        return self._broken.is_set()

    def _submit(self, call: Callable[..., None], trial_id: str, *arguments: Any) -> None:
        self._calls.put((call, trial_id, arguments))

    def _work(self) -> None:
        while True:
            call, trial_id, arguments = self._calls.get()
            try:
                call(trial_id, *arguments)
            except Exception as error:
                self._failed(trial_id, Fault.of(error))
            finally:
                self._calls.task_done()

    def _failed(self, trial_id: str, fault: Fault) -> None:
        if fault.kind != "unreachable":
            if (trial := self._trials.pop(trial_id, None)) is not None:
                trial.drop()
            log.warning("the W&B run of %s is not logged: %s; training goes on", trial_id, fault.reason)
            return
        if not self.is_broken:
            log.warning(
                "W&B cannot be reached (%s); training goes on, logging is tried again after %.0f s, "
                "and `polysweep sync` completes its runs",
                fault.reason,
                RETRY_SECONDS,
            )
        self._broken.set()
        self._again_at = time.monotonic() + RETRY_SECONDS
        # A run whose opening has failed is in use for the client as long as its service lives.
        end_client(0.0)
        for trial in self._trials.values():
            trial.drop()

    def _is_open(self, trial: _Logged) -> bool:
        """Whether rows can be sent; a run that is not open is opened, with all its rows, where it is time to try."""
        if trial.live is not None:
            return True
        if time.monotonic() < self._again_at:
            return False
        trial.folder = OwnFolder(Path(tempfile.gettempdir()), FOLDER)
        trial.live = open_run(trial.run, "online", trial.folder.path)
        log_rows(trial.live, trial.rows)
        self._broken.clear()
        return True

    def _start(self, trial_id: str, run: Run, history: list[Mapping[str, Any]]) -> None:
        before = self._trials.pop(trial_id, None)
        if before is not None and before.live is not None:  # the stack has started over, narrower
            close_run(before.live, "running")
            before.drop()
        self._trials[trial_id] = _Logged(run, history)
        self._is_open(self._trials[trial_id])

    def _log_row(self, trial_id: str, row: Mapping[str, Any]) -> None:
        trial = self._trials.get(trial_id)
        if trial is None:
            return
        trial.rows.append(row)
        if trial.live is not None:
            log_rows(trial.live, [row])
        else:
            self._is_open(trial)

    def _finish(self, trial_id: str, outcome: str) -> None:
        trial = self._trials.get(trial_id)
        if trial is None:
            return
        try:
            if self._is_open(trial):
                close_run(trial.live, outcome)
        finally:
            self._trials.pop(trial_id).drop()
