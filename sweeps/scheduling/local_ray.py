"""A Ray of the launch's own: out of the reach of signals, watched while it runs, and gone when the launch is."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final

import ray
from ray._private.services import ConsolePopen

from polysweep.sweeps.scheduling import reaper
from polysweep.sweeps.scheduling.ray_errors import RESUME
from polysweep.sweeps.worker.signals import shielded
from polysweep.trainer.cpus import usable_cpus

POLL_SECONDS: Final = 2.0
LOOKS: Final = 30
LOST_SECONDS: Final = 40.0
"""How long a cluster may be silent; Ray itself would end the process without a word after 60."""
ATTEMPTS: Final = 3
"""How often Ray is started while its processes are too slow."""
TIMED_OUT: Final = "timed out during startup"
_NEEDED: Final = {
    "gcs_server": r"gcs/gcs_server",
    "raylet": r"raylet/raylet",
    "dashboard agent": r"DashboardAgent|dashboard/agent\.py",
    "runtime_env agent": r"RuntimeEnvAgent|runtime_env/agent",
}
"""Processes that Ray cannot do without, by patterns of their command lines."""


@contextmanager
def local_ray(folder: str, options: dict[str, Any], lost: Callable[[str], None]) -> Iterator[None]:
    """Ray on this machine, with its files in `folder`; `lost(reason)` is called, in a thread, when it has died."""
    mark = secrets.token_hex(8)
    guard = subprocess.Popen(
        [sys.executable, "-IS", str(reaper.__file__), mark, folder],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True,
    )  # fmt: skip
    has_ended = threading.Event()
    try:
        with _marked(mark), shielded():
            _start(mark, folder, options)
        threading.Thread(target=_watch_processes, args=(mark, has_ended, lost), name="ray", daemon=True).start()
        yield
    finally:
        has_ended.set()
        with _ended_at_once():
            ray.shutdown()
        assert guard.stdin is not None
        with suppress(OSError, subprocess.TimeoutExpired):
            guard.stdin.write(b"\n")
            guard.stdin.close()
            guard.wait(5.0)


def _start(mark: str, folder: str, options: dict[str, Any]) -> None:
    """Start Ray, and start it again if its processes need more than the 30 s that Ray allows: the machine is busy."""
    for attempt in count(1):
        try:
            ray.init(address="local", num_cpus=usable_cpus(), include_dashboard=False, _temp_dir=folder, **options)
        except Exception as error:  # Ray has no type of its own for it
            if TIMED_OUT not in str(error) or attempt == ATTEMPTS:
                raise
            reaper.kill(reaper.marked(mark))
        else:
            return


@contextmanager
def _marked(mark: str) -> Iterator[None]:
    """What is started in here carries the mark; what else this process starts is not Ray's."""
    # Else the name that Ray gives its processes is written over their environment, where the mark is.
    added = {reaper.MARK: mark, "SPT_NOENV": "1"}
    os.environ |= added
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _ended_at_once() -> Iterator[None]:
    """In here Ray kills its processes: shielded, they do not hear SIGTERM, and Ray would wait a second for each."""
    terminate = ConsolePopen.terminate
    ConsolePopen.terminate = ConsolePopen.kill  # type: ignore[method-assign]
    try:
        yield
    finally:
        ConsolePopen.terminate = terminate  # type: ignore[method-assign]


def _watch_processes(mark: str, has_ended: threading.Event, lost: Callable[[str], None]) -> None:
    """Until one of the processes that Ray needs is gone."""
    pids: dict[str, int] = {}
    for poll in count():
        if len(pids) < len(_NEEDED) and poll < LOOKS:  # the agents may be a little later than Ray says
            for pid, line in reaper.marked(mark).items():
                pids |= {name: pid for name, look in _NEEDED.items() if name not in pids and re.search(look, line)}
        gone = [name for name, pid in pids.items() if not reaper.is_alive(pid)]
        if gone and not has_ended.is_set():
            lost(f"Ray has died ({', '.join(gone)}); {RESUME}")
            return
        if has_ended.wait(POLL_SECONDS):
            return


@contextmanager
def watched_cluster(is_alive: Callable[[], bool], lost: Callable[[str], None]) -> Iterator[None]:
    """Ask a cluster now and then whether it lives; `lost(reason)` is called when it has been silent for 40 s."""
    has_ended = threading.Event()

    def watch() -> None:
        silent = 0.0
        while not has_ended.wait(5 * POLL_SECONDS):
            silent = 0.0 if is_alive() else silent + 5 * POLL_SECONDS
            if silent >= LOST_SECONDS:
                lost(f"the Ray cluster has not answered for {silent:.0f} s; {RESUME}")
                return

    threading.Thread(target=watch, name="cluster", daemon=True).start()
    try:
        yield
    finally:
        has_ended.set()
