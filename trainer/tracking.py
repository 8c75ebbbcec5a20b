"""Weights & Biases: one run per trial, its id the trial id.

The Store is the truth and W&B mirrors it. Offline runs are written whole from a finished history; online runs are
logged epoch by epoch from a background thread, so that a slow or unreachable server never stops training.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import netrc
import os
import queue
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from trainer.config import TrialConfig
from trainer.registry import UserError

Mode = Literal["online", "offline", "disabled"]
GROUP_CHARACTERS: Final = 119
INIT_SECONDS: Final = 30.0
FINISH_SECONDS: Final = 60.0
log = logging.getLogger("polysweep.tracking")


def resolve_mode(given: str | None) -> Mode:
    """The mode asked for, else `WANDB_MODE`, else online where W&B is logged in and offline elsewhere.

    Raises `UserError` with the valid modes.
    """
    source, mode = "--wandb", given
    if mode is None:
        source, mode = "WANDB_MODE", os.environ.get("WANDB_MODE") or None
    if mode is None:
        return "online" if logged_in() else "offline"
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


@dataclass(frozen=True)
class Run:
    """A trial as W&B shows it."""

    trial_id: str
    name: str
    group: str
    job_type: str
    tags: tuple[str, ...]
    config: Mapping[str, Any]


def describe(config: TrialConfig, sweeps: Sequence[str] = ()) -> Run:
    """Name, group, job type, tags and config of a trial's run.

    The group is the config without its seed: its non-default fields, cut to 119 characters, then 8 hash digits of all
    of it, so it is the same in every sweep and no two configs share one.
    """
    fields = config.canonical()
    fields.pop("seed", None)
    listing = " ".join(f"{key}={_short(value)}" for key, value in fields.items())
    digest = hashlib.sha256(repr(sorted(fields.items())).encode()).hexdigest()[:8]
    return Run(
        config.trial_id,
        run_name(config),
        f"{listing[:GROUP_CHARACTERS]}-{digest}",
        config.scheduler,
        tuple(sorted(sweeps)),
        config.flat(),
    )


def run_name(config: TrialConfig) -> str:
    """`usam polyak rho=0.1 wd=0.0005 s=0`, with the step size where it is fixed and a cap that is not 1."""
    parts = [config.optimizer, config.scheduler]
    if config.lr is not None:
        parts.append(f"lr={_short(config.lr)}")
    if config.lr_min is not None:
        parts.append(f"lr_min={_short(config.lr_min)}")
    if config.gamma_b not in (None, 1.0):
        parts.append(f"gamma_b={_short(config.gamma_b)}")
    if config.rho is not None:
        parts.append(f"rho={_short(config.rho)}")
    return " ".join([*parts, f"wd={_short(config.weight_decay)}", f"s={config.seed}"])


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def offline_run(folder: Path, trial_id: str) -> Path | None:
    """The complete offline run of a trial, None where it is not written yet."""
    return next(folder.glob(f"offline-run-*-{trial_id}"), None)


def offline_runs(folder: Path) -> set[str]:
    """The trial ids that have an offline run."""
    return {path.name.rpartition("-")[2] for path in folder.glob("offline-run-*")}


def write_offline(folder: Path, run: Run, history: Sequence[Mapping[str, Any]], outcome: str, ended: float) -> Path:
    """Write a trial's whole run as an offline run below `folder`: aside, then renamed, so it is complete or absent.

    Its name follows from the trial and from when it `ended` (seconds since 1970), so that of two writers one wins.
    """
    done = offline_run(folder, run.trial_id)
    if done is not None:
        return done
    stamp = time.strftime("%Y%m%d_%H%M%S", time.gmtime(ended))
    target = folder / f"offline-run-{stamp}-{run.trial_id}"
    aside = folder / f".aside-{uuid.uuid4().hex}"
    aside.mkdir(parents=True)
    try:
        with (aside / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as long as we live: see remove_leftovers
            live = _open(run, "offline", aside)
            _log(live, history)
            _close(live, outcome)
            (written,) = (aside / "wandb").glob(f"offline-run-*-{run.trial_id}")
            try:
                written.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise  # else another process was faster
        return target
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes were writing aside; what a living one writes is locked, and stays."""
    for path in folder.glob(".aside-*/lock"):
        with contextlib.suppress(OSError), path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)


class Online:
    """Online runs of one process, logged by a thread of their own in the order of the calls.

    What cannot be sent is dropped with one warning, and the client may drop rows without one: the Store has them, and
    `sweeps.reconcile.upload` compares.
    """

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[Callable[..., None], tuple[Any, ...]]] = queue.Queue()
        self._runs: dict[str, Any] = {}
        self._folders: dict[str, str] = {}
        self._broken = threading.Event()
        # A daemon: at the end of the process it is not waited for, however slow the server.
        threading.Thread(target=self._work, name="wandb", daemon=True).start()

    def start(self, run: Run, history: Sequence[Mapping[str, Any]]) -> None:
        """Open or resume the run, and send the rows of `history` that the server lacks."""
        self._submit(self._start, run, list(history))

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

    @property
    def is_broken(self) -> bool:
        """Whether the server could not be reached."""
        return self._broken.is_set()

    def _submit(self, call: Callable[..., None], *arguments: Any) -> None:
        self._calls.put((call, arguments))

    def _work(self) -> None:
        while True:
            call, arguments = self._calls.get()
            try:
                if not self.is_broken:
                    call(*arguments)
            except Exception as error:
                self._broken.set()
                log.warning("W&B cannot be reached (%s); training goes on, `polysweep sync` completes its runs", error)
            finally:
                self._calls.task_done()

    def _start(self, run: Run, history: list[Mapping[str, Any]]) -> None:
        folder = tempfile.mkdtemp(prefix="polysweep-wandb-")
        self._folders[run.trial_id] = folder
        live = _open(run, "online", Path(folder))
        self._runs[run.trial_id] = live
        _log(live, history)

    def _log_row(self, trial_id: str, row: Mapping[str, Any]) -> None:
        _log(self._runs[trial_id], [row])

    def _finish(self, trial_id: str, outcome: str) -> None:
        _close(self._runs.pop(trial_id), outcome)
        shutil.rmtree(self._folders.pop(trial_id), ignore_errors=True)


def _open(run: Run, mode: Mode, folder: Path) -> Any:
    for name in [name for name, value in os.environ.items() if name.startswith("WANDB_") and not value]:
        del os.environ[name]  # set but empty: wandb would refuse to start
    import wandb

    silent = os.environ.setdefault("WANDB_SILENT", "true").lower() != "false"
    return wandb.init(
        entity=os.environ.get("WANDB_ENTITY"),
        project=os.environ.get("WANDB_PROJECT") or "polysweep",
        id=run.trial_id,
        name=run.name,
        group=run.group,
        job_type=run.job_type,
        tags=list(run.tags),
        config=dict(run.config),
        mode=mode,
        dir=str(folder),
        reinit="create_new",
        resume="allow" if mode == "online" else None,
        settings=wandb.Settings(
            silent=silent,
            console="off",
            symlink=False,
            init_timeout=INIT_SECONDS,
            finish_timeout=FINISH_SECONDS,
            finish_timeout_raises=True,
            disable_git=True,
            disable_code=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        ),
    )


def _log(live: Any, history: Sequence[Mapping[str, Any]]) -> None:
    """Log rows at step = epoch; those that a resumed run already has are left out."""
    for row in history:
        if row["epoch"] >= live.starting_step:
            live.log({key: value for key, value in row.items() if value is not None}, step=row["epoch"])


def _close(live: Any, outcome: str) -> None:
    live.summary["outcome"] = outcome
    live.finish(exit_code=0 if outcome in ("finished", "diverged", "stopped") else 1)
