"""The W&B client of this process: a run from its opening to its end, what its errors mean, and an end in bounded time.

The client's service (`wandb-core`, a process of its own) repeats what a server refuses for as long as it is refused,
and the client's exit hook waits for it without a limit. `end_client` waits a little and then ends the service.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any, Final, Literal, TypeVar

from polysweep.trainer.errors import UserError

Mode = Literal["online", "offline", "disabled"]
INIT_SECONDS: Final = 30.0
FINISH_SECONDS: Final = 60.0
EXIT_SECONDS: Final = 2.0
UPLOAD_RETRIES: Final = 4
SPENT: Final = 409
FOR_NOW: Final = (408, 425, 429)
"""Answers that a server takes back by itself: too late, too early, too many."""
_STATUS: Final = re.compile(r"(?:HTTP|error) ([45]\d\d)\b")
T = TypeVar("T")
_open: dict[int, Any] = {}
"""The runs that are open, by their `id()`."""


@dataclass(frozen=True)
class Run:
    """A trial as W&B shows it."""

    trial_id: str
    name: str
    group: str
    job_type: str
    tags: tuple[str, ...]
    config: Mapping[str, Any]
    place: tuple[str | None, str] | None = None  # entity and project, if they are not those of the environment
    sweep_id: str | None = None  # of the W&B Sweep that it belongs to


@dataclass(frozen=True)
class Fault:
    """Why a run could not be logged.

    `kind` is `deleted` (somebody deleted the run; the server never gives its id away again), `unreachable` (nothing
    can be logged for now), or `refused` (it concerns this run alone).
    """

    kind: Literal["deleted", "unreachable", "refused"]
    reason: str

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """By the client's exception; what the server answered stands in its text only."""
        from wandb.errors import CommError

        lines = str(error).strip().splitlines() or [type(error).__name__]
        statuses = [int(code) for code in _STATUS.findall(" ".join(lines))]
        reason = " ".join(line for line in lines if "init_timeout" not in line)
        if SPENT in statuses:
            return cls("deleted", reason)
        if any(400 <= status < 500 and status not in FOR_NOW for status in statuses):
            return cls("refused", reason)
        lost = (CommError, TimeoutError, ConnectionError, *_closed())
        is_lost = statuses or isinstance(error, lost) or "giving up after" in reason
        return cls("unreachable" if is_lost else "refused", reason)


def _closed() -> tuple[type[BaseException], ...]:
    """What the client raises once its service has ended."""
    from wandb.sdk.mailbox import HandleAbandonedError, MailboxClosedError

    return HandleAbandonedError, MailboxClosedError


def open_run(run: Run, mode: Mode, folder: Path, *, is_upload: bool = False) -> Any:
    """Open or resume a run. An upload gives up after a few requests; a run that is trained waits for `INIT_SECONDS`."""
    require_own_ids()
    prepare_environment()
    import wandb

    silent = os.environ["WANDB_SILENT"].lower() != "false"
    entity, project = run.place or target_project()
    retries = {
        "x_graphql_retry_max": UPLOAD_RETRIES,
        "x_graphql_retry_wait_min_seconds": 0.5,
        "x_graphql_retry_wait_max_seconds": 2.0,
    }
    try:
        live = wandb.init(
            entity=entity,
            project=project,
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
                sweep_id=run.sweep_id,
                **(retries if is_upload else {}),
            ),
        )
    finally:
        end_in_time_at_exit()
    _open[id(live)] = live
    live.summary["outcome"] = "running"  # a resumed run has the word of its earlier end
    return live


def target_project(entity: str | None = None, project: str | None = None) -> tuple[str | None, str]:
    """Entity and project that runs are logged to: of the environment, else those given, else None and `polysweep`."""
    return os.environ.get("WANDB_ENTITY") or entity, os.environ.get("WANDB_PROJECT") or project or "polysweep"


def require_own_ids() -> None:
    """Raise `UserError` inside a W&B agent: with that variable the client gives every run another id and project."""
    if os.environ.get("WANDB_SWEEP_ID"):
        raise UserError(
            "WANDB_SWEEP_ID: set, as by a W&B agent; the client would ignore the ids of the trials. Unset it: "
            "polysweep needs no agent, and --wandb-sweep registers a sweep as a W&B Sweep"
        )


def prepare_environment() -> None:
    """What has to be in the environment before the client is imported: it reads it once.

    Variables that are set but empty are removed, as it refuses to start with them, and it is silent unless told
    otherwise: what it has to say of a server is said here.
    """
    for name in [name for name, value in os.environ.items() if name.startswith("WANDB_") and not value]:
        del os.environ[name]
    os.environ.setdefault("WANDB_SILENT", "true")


def log_rows(live: Any, history: Sequence[Mapping[str, Any]]) -> None:
    """Log rows at step = epoch; those that a resumed run already has are left out."""
    for row in history:
        if row["epoch"] >= live.starting_step:
            live.log({key: value for key, value in row.items() if value is not None}, step=row["epoch"])


def close_run(live: Any, outcome: str) -> None:
    """End a run; of a trial that is to go on (`running`) the server says that it was preempted."""
    live.summary["outcome"] = outcome
    if outcome == "running":
        live.mark_preempting()
    live.finish(exit_code=0 if outcome in ("finished", "diverged", "stopped") else 1)
    _open.pop(id(live), None)


def abandon_run(live: Any) -> None:
    """Leave a run that cannot be ended: its thread, which asks after the network, would fail without a service."""
    _open.pop(id(live), None)
    if live._run_status_checker is not None:
        live._run_status_checker.stop()


def send_run(run: Run, history: Sequence[Mapping[str, Any]], outcome: str, folder: Path, seconds: float) -> None:
    """Upload what the server lacks of a run, and its end. Raises what the client raises, or `TimeoutError`."""

    def send() -> None:
        live = open_run(run, "online", folder, is_upload=True)
        log_rows(live, history)
        close_run(live, outcome)

    in_time(send, seconds)


def in_time(call: Callable[[], T], seconds: float) -> T:
    """What a call returns or raises; `TimeoutError` if it takes longer, and it is then left to itself."""
    result: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            result.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="wandb", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not result:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return result[0]


def end_in_time_at_exit() -> None:
    """Have the client end in time at exit: before its own hook, which is registered when its service starts."""
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)


def _at_exit() -> None:
    import wandb

    if wandb.run is None:  # else a run of the user's own is open, in a notebook: the client's own hook waits for it
        end_client()


def end_client(seconds: float = EXIT_SECONDS) -> None:
    """End this process's client and its service: in order within `seconds`, else at once.

    What is not uploaded by then is not. A run that is opened later starts another service.
    """
    if "wandb" not in sys.modules:
        return
    import wandb

    def tear_down() -> None:
        with contextlib.suppress(BaseException):  # it exits with the code of its service
            wandb.teardown()

    for live in list(_open.values()):
        abandon_run(live)
    service = service_process()
    thread = threading.Thread(target=tear_down, name="wandb", daemon=True)
    thread.start()
    thread.join(seconds)
    if service is not None and service.poll() is None:
        service.kill()
        service.wait()
    thread.join(EXIT_SECONDS)


def service_process() -> Popen[bytes] | None:
    """The client's `wandb-core`; None if it is not running."""
    from wandb.sdk import wandb_setup

    setup = wandb_setup._singleton
    if setup is None or setup._connection is None or setup._connection._proc is None:
        return None
    process: Popen[bytes] = setup._connection._proc._process
    return process
