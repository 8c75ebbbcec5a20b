"""Two threads beside the training of a stack: heartbeats; the request to stop and saves that are due."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from polysweep.sweeps.store.claims import HEARTBEAT_SECONDS, Lease
from polysweep.sweeps.store.store import Store

POLL_SECONDS: Final = 0.3
REMOTE_POLL_SECONDS: Final = 2.0
"""In an object store, where every look is a request."""
log = logging.getLogger("polysweep.worker")


class Watch:
    """Two threads: one keeps the lease alive; one looks for the request to stop and calls `tick`."""

    def __init__(self, store: Store, lease: Lease, stop_file: str, tick: Callable[[], None]) -> None:
        self.stop = threading.Event()
        self._store = store
        self._lease = lease
        self._stop_file = stop_file
        self._tick = tick
        self._has_ended = threading.Event()
        self._awake = threading.Event()
        every = POLL_SECONDS if store.is_local else REMOTE_POLL_SECONDS
        self._threads = [
            threading.Thread(target=self._repeat, args=(self._has_ended, HEARTBEAT_SECONDS, lease.beat), daemon=True),
            threading.Thread(target=self._repeat, args=(self._awake, every, self._look), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def flush(self) -> None:
        """Look and save now: a process that has received a signal may not live until the next round."""
        self._awake.set()

    def close(self) -> None:
        """End the threads."""
        self._has_ended.set()
        self._awake.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, pause: threading.Event, seconds: float, act: Callable[[], None]) -> None:
        while True:
            pause.wait(seconds)
            if self._has_ended.is_set():
                return
            try:
                act()
            except Exception:
                log.warning("the Store is unreachable; the next round may get through", exc_info=True)

    def _look(self) -> None:
        self._awake.clear()
        self._tick()
        if self._stop_file and self._store.files.read(self._stop_file) is not None:
            self.stop.set()
            self._tick()
