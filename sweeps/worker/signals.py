"""Signals: noticed at once whatever the process is doing, acted on by a thread, and the process is out in time.

Only the standard library is imported, and little of it: the command handles its signals before all other imports.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
GRACE_SECONDS: Final = 7.0
"""For storing what has been trained."""
EXIT_SECONDS: Final = 3.0
"""For a process that has nothing to store."""
REPEAT_SECONDS: Final = 1.0
ERROR: Final = 2  # exit code


class Interruption:
    """The first signal ends what the process does, cleanly if that is quick; a second one ends the process at once.

    Python's handler in C writes every signal to a pipe, and a thread reads it there: also while the main thread is
    inside a library, waits for a lock, or is in a handler already. That thread ends the process when its time is up.
    Signals within a second are one: a terminal or a batch system may send them to the process and to its group.
    """

    _of_process: Interruption | None = None

    def __init__(self, signals: tuple[signal.Signals, ...] = SIGNALS, *, is_worker: bool = False) -> None:
        self.signal = 0
        self.lost = ""  # why the work cannot continue, if something other than a signal ends it
        self._signals = signals
        self._is_worker = is_worker  # which says nothing: Ray ends every worker by a signal, also one without work
        self.grace = EXIT_SECONDS  # from the first signal to the end of the process
        self._in_order = self._raised = False
        self._ask_to_stop: Callable[[], None] = lambda: None
        self._before: dict[int, Any] = {}
        self._reader = self._writer = -1

    @classmethod
    def of_process(cls) -> Self:
        """The one of the running command; a new one in a process that is not a command, such as a Ray worker."""
        if cls._of_process is None:
            return cls()
        assert isinstance(cls._of_process, cls)
        return cls._of_process

    def install(self, *, for_process: bool = False) -> None:
        """Take the signals over; again after whatever replaces handlers, as `ray.init` does.

        A hangup that is ignored stays ignored: `nohup` asked for it. In the main thread only.
        """
        if for_process and Interruption._of_process is not self:
            Interruption._of_process = self
            self._hide_lost_exits()
        if self._reader < 0:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._writer, False)
            signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            threading.Thread(target=self._watch, name="signals", daemon=True).start()
        for number in self._signals:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)  # they are blocked in what `shielded` has started

    def _hide_lost_exits(self) -> None:
        """Print no traceback if the exception of a handler, ours or Ray's, is lost: the thread ends the process."""
        before = sys.unraisablehook

        def hook(lost: sys.UnraisableHookArgs) -> None:
            if not (self.signal and isinstance(lost.exc_value, SystemExit)):
                before(lost)

        sys.unraisablehook = hook

    def uninstall(self) -> None:
        """Restore the earlier handlers, and end the thread."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if self._reader >= 0:
            signal.set_wakeup_fd(-1)
            os.close(self._writer)  # the thread reads an end, and closes its own
            self._reader = self._writer = -1
        if Interruption._of_process is self:
            Interruption._of_process = None

    @contextmanager
    def in_order(
        self, ask_to_stop: Callable[[], None] = lambda: None, seconds: float = GRACE_SECONDS
    ) -> Iterator[Self]:
        """Code in this context reads `signal` and `lost` itself, and ends cleanly within `seconds`.

        A thread calls `ask_to_stop` when the signal comes. Raises `SystemExit` if one has come already.
        """
        installed = self._reader >= 0
        try:
            self.start_in_order(ask_to_stop, seconds)
            yield self
        finally:
            self._in_order = False
            if not installed:
                self.uninstall()

    def start_in_order(self, ask_to_stop: Callable[[], None], seconds: float = GRACE_SECONDS) -> None:
        """The same for the rest of the process's life, as for a worker."""
        self.install()
        if self.signal:
            raise SystemExit(self.exit_code)
        self._ask_to_stop, self.grace, self._in_order = ask_to_stop, seconds, True

    @property
    def exit_code(self) -> int:
        """128 + the signal's number, as in a shell."""
        return 128 + self.signal

    @property
    def is_over(self) -> bool:
        """Whether the work is to end."""
        return bool(self.signal or self.lost)

    def request(self, number: int) -> None:
        """As if the signal had come, but without its deadline: from another thread, by a word in the Store."""
        if not self.is_over:
            self.signal = number

    def give_up(self, reason: str) -> None:
        """End the work for another reason, from another thread; if it does not end in time, the process exits."""
        if not self.is_over:
            self.lost = reason
            with suppress(OSError):
                os.write(self._writer, b"\0")

    def exit(self) -> NoReturn:
        """Exit after a clean end: what libraries do at the end of an interpreter can take longer than there is time."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(self.exit_code if self.signal else ERROR)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        """No more than this: the main thread may be anywhere, and hold any lock."""
        self.signal = self.signal or number
        if not self._in_order and not self._raised:
            self._raised = True
            raise SystemExit(self.exit_code)

    def _watch(self) -> None:
        """The thread; an exception that the handler raised may be lost in a destructor, and this is not."""
        reader, began, deadline = self._reader, 0.0, None
        while True:
            rest = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([reader], [], [], rest)[0]:
                self._exit()
            read = os.read(reader, 64)
            if not read:
                os.close(reader)
                return
            numbers = [number for number in read if number in self._signals]
            if not numbers and not (0 in read and self.lost):
                continue
            if deadline is None:
                if numbers:
                    self.request(numbers[0])
                began = time.monotonic()
                deadline = began + self.grace
                threading.Thread(target=self._announce, args=(self._in_order,), daemon=True).start()
            elif time.monotonic() - began > REPEAT_SECONDS:
                self.signal = self.signal or (numbers[0] if numbers else 0)
                self._exit()

    def _exit(self) -> NoReturn:
        if self.signal:
            os._exit(self.exit_code)
        with suppress(OSError):
            os.write(2, f"error: {self.lost}\n".encode())
        os._exit(ERROR)

    def _announce(self, in_order: bool) -> None:
        """Ask the workers to stop, and print that. A thread of its own: a Store that does not answer delays nothing."""
        trouble = ""
        try:
            self._ask_to_stop()
        except Exception as error:
            trouble = f" (cannot ask the workers to stop: {error})"
        if in_order and not self.lost and not self._is_worker:
            with suppress(OSError, RuntimeError, ValueError):
                print(f"\ninterrupted: saving completed epochs before exiting{trouble}", file=sys.stderr, flush=True)


@contextmanager
def shielded() -> Iterator[None]:
    """Processes that are started in here do not hear the signals of their group: they live until they are ended.

    This process hears them, by its other threads.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
