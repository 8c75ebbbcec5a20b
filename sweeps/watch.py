"""What goes on beside the training of a stack: heartbeats, the request to stop, saves that are due."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from sweeps.claims import HEARTBEAT_SECONDS, Claim
from sweeps.store import Store

POLL_SECONDS: Final = 0.3
log = logging.getLogger("polysweep.worker")


class Watch:
    """A thread that keeps claims alive, looks for the request to stop, and calls `tick` a few times a second."""

    def __init__(self, store: Store, claims: Sequence[Claim], stop_file: str, tick: Callable[[], None]) -> None:
        self.stop = threading.Event()
        self._store = store
        self._claims = list(claims)
        self._stop_file = stop_file
        self._tick = tick
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="claims", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        last_beat = time.monotonic()
        while not self._over.wait(POLL_SECONDS):
            try:
                if time.monotonic() - last_beat >= HEARTBEAT_SECONDS:
                    last_beat = time.monotonic()
                    for claim in self._claims:
                        claim.beat()
                if self._stop_file and self._store.files.exists(self._stop_file):
                    self.stop.set()
                self._tick()
            except Exception:
                log.warning("the Store is out of reach; the next round may get through", exc_info=True)
