"""SIGINT and SIGTERM: finish in order if that is quick, and be out in time if it is not."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from trainer.registry import UserError

GRACE_SECONDS: Final = 7.0
REPEAT_SECONDS: Final = 1.0


@dataclass
class Interruption:
    """The first signal calls `ask_to_stop` and gives the process 7 s; a second one ends it at once.

    Both signals within a second are one: a terminal or a batch system may send them to the process and to its group.
    """

    ask_to_stop: Callable[[], None] = field(default=lambda: None)
    signal: int = 0
    _at: float = 0.0
    _before: dict[int, Any] = field(default_factory=dict)

    def install(self) -> None:
        """Take over both signals; `ray.init` replaces one of them, so call it again after that."""
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def uninstall(self) -> None:
        """Give both signals back to who had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """130 or 143."""
        return 128 + self.signal

    def request(self, number: int) -> None:
        """As if the signal had come, but without its deadline: from another thread, by a word in the Store."""
        if not self.signal:
            self.signal = number

    def _handle(self, number: int, _frame: object) -> None:
        if self._at:
            if time.monotonic() - self._at > REPEAT_SECONDS:
                os._exit(self.exit_code)
            return
        self.signal, self._at = self.signal or number, time.monotonic()
        watchdog = threading.Timer(GRACE_SECONDS, os._exit, [self.exit_code])
        watchdog.daemon = True
        watchdog.start()
        trouble = ""
        try:
            self.ask_to_stop()
        except (OSError, UserError) as error:
            trouble = f" (cannot ask the workers to stop: {error})"
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            print(f"\ninterrupted: storing finished epochs, then out{trouble}", file=sys.stderr)
