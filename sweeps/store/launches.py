"""Which launches of a sweep are alive, and how one is told to stop: small files in the Store, from any machine."""

from __future__ import annotations

import json
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from polysweep.sweeps.store.claims import HEARTBEAT_SECONDS, STALE_SECONDS, Owner
from polysweep.sweeps.store.files import OutOfReachError, StoreError, UnreadableError
from polysweep.sweeps.store.process import Process
from polysweep.sweeps.store.store import Store

POLL_SECONDS: Final = 1.0
_STOP = re.compile(r"stop-([0-9a-f]+)")
_LAUNCH = re.compile(r"launch-([0-9a-f]+)\.json")
log = logging.getLogger("polysweep.store")


class LaunchLease:
    """One launch of a sweep while it runs.

    `launch-<id>.json` is its heartbeat; it and its workers stop once `stop-<id>` exists.
    """

    def __init__(
        self, store: Store, sweep: str, on_stop: Callable[[], None], on_lost: Callable[[str], None], launch_id: str = ""
    ) -> None:
        """In a thread, `on_stop()` is called once the stop file exists, `on_lost(reason)` if the Store is lost."""
        self._store = store
        self.id = launch_id or secrets.token_hex(8)
        self._path = f"sweeps/{sweep}/launch-{self.id}.json"
        self.stop_file = f"sweeps/{sweep}/stop-{self.id}"
        self._on_stop = on_stop
        self._on_lost = on_lost
        self._sweep = sweep
        self._since = time.time()
        self._beats = 0
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="launch", daemon=True)

    def __enter__(self) -> Self:
        self._remove_leftovers()
        self._beat()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended.set()
        self._thread.join()
        with suppress(StoreError):  # else it goes stale
            self._store.files.remove(self.stop_file)
            self._store.files.remove(self._path)

    def _remove_leftovers(self) -> None:
        """Remove what killed launches have left: their leases, and the requests to stop them."""
        folder = f"sweeps/{self._sweep}"
        told = [match[1] for name in self._store.files.names(folder) if (match := _STOP.fullmatch(name))]
        alive = launches(self._store, self._sweep, clean=True)
        for launch in told:
            if launch not in alive:
                self._store.files.remove(f"{folder}/stop-{launch}")

    def ask_to_stop(self) -> None:
        """Tell this launch's workers."""
        self._store.files.write(self.stop_file, b"")

    def _beat(self) -> None:
        self._beats += 1
        beat = {"process": vars(Process.this()), "since": self._since, "beats": self._beats, "released": False}
        self._store.files.write(self._path, json.dumps(beat).encode())

    def _run(self) -> None:
        last = time.monotonic()
        is_asked = False
        while not self._has_ended.wait(POLL_SECONDS):
            try:
                if time.monotonic() - last >= HEARTBEAT_SECONDS:
                    last = time.monotonic()
                    self._beat()
                if not is_asked and self._store.files.exists(self.stop_file):
                    is_asked = True
                    self._on_stop()
            except OutOfReachError as error:  # waited for as long as a launch waits
                self._on_lost(str(error))
                return
            except StoreError as error:
                log.warning("%s", error)


def launches(store: Store, sweep: str, *, clean: bool = False) -> dict[str, Owner]:
    """By id, the launches of a sweep that are not known to be gone; `clean` removes what the others left."""
    alive = {}
    for name in store.files.names(f"sweeps/{sweep}"):
        if match := _LAUNCH.fullmatch(name):
            path = f"sweeps/{sweep}/{name}"
            try:
                content = store.files.read(path)
            except UnreadableError:  # a folder or device of that name
                continue
            holder = None if content is None else store.claims.alive(path, content)
            if holder is not None:
                alive[match[1]] = holder
            elif content is not None and clean:
                store.files.remove(path)
    return alive


def stop(
    store: Store, sweep: str, say: Callable[[str], None], seconds: float = STALE_SECONDS + 5, *, only: str = ""
) -> bool:
    """Ask every launch of the sweep, or `only` one, to stop and wait until they have.

    False if one has not stopped in time.
    """

    def alive() -> dict[str, Owner]:
        return {launch: h for launch, h in launches(store, sweep, clean=True).items() if only in ("", launch)}

    running = alive()
    for launch, holder in running.items():
        say(f"asking {holder} to stop")
        store.files.write(f"sweeps/{sweep}/stop-{launch}", b"")
    deadline = time.monotonic() + seconds
    while left := alive():
        if time.monotonic() > deadline:
            say(f"no answer from {', '.join(map(str, left.values()))}")
            return False
        time.sleep(0.2)
    for launch in running:
        store.files.remove(f"sweeps/{sweep}/stop-{launch}")
    if not running:
        say(f"{sweep}: no launch is running")
    return True
