"""`polysweep` in the test's own process: quicker than a process of its own, and never for longer than it may take."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from polysweep.cli import app
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import printable

CPU_SECONDS, WALL_SECONDS = 30, 300  # of a command that trains nothing
"""A hang computes, or waits. On a busy machine only the processor's own seconds say which of the two."""


class HungError(BaseException):
    """A command that did not end; no `except Exception` of the code catches it."""


@contextmanager
def in_time(cpu_seconds: int = CPU_SECONDS, wall_seconds: int = WALL_SECONDS) -> Iterator[None]:
    """Raise `HungError` after some seconds of computing, or many of waiting."""

    def end(number: int, frame: object) -> None:
        raise HungError(f"after {cpu_seconds if number == signal.SIGPROF else wall_seconds} s")

    before = {number: signal.signal(number, end) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.alarm(wall_seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def polysweep(
    *arguments: str | Path, cpu_seconds: int = CPU_SECONDS, wall_seconds: int = WALL_SECONDS
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process. What is not the user's error comes out as it is."""
    out, err = io.StringIO(), io.StringIO()
    with in_time(cpu_seconds, wall_seconds), redirect_stdout(out), redirect_stderr(err):
        try:
            app([str(argument) for argument in arguments], prog_name="polysweep")
            code: Any = 0
        except SystemExit as end:
            code = end.code
        except UserError as error:
            code = 2
            err.write(f"error: {printable(' '.join(str(error).splitlines()))}\n")
    assert code in (0, 1, 2), code
    for text in (out.getvalue(), err.getvalue()):
        assert "\x1b" not in text and "Traceback (most recent" not in text
    return code, out.getvalue(), err.getvalue()
