"""Ray's own errors as a user sees them: one line, its cause first, and never a traceback."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ray.exceptions import OutOfMemoryError, RayActorError

from polysweep.trainer.errors import UserError

RESUME: Final = "rerun the same command to resume"
LONGEST: Final = 300  # characters


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Raises a `UserError` that names the cause of what Ray raises; what is not Ray's is raised as it is."""
    try:
        yield
    except Exception as error:
        chain = _chain(error)
        for link in chain:
            if isinstance(link, UserError):
                raise link from None
        if not any(map(_is_rays, chain)):
            raise
        raise UserError(f"Ray: {cause_of(error)}; {RESUME}") from None


def is_memory(error: BaseException) -> bool:
    """Whether Ray's memory monitor has ended a worker: the machine was full, whoever filled it."""
    return any(isinstance(link, OutOfMemoryError) or "running low on memory" in str(link) for link in _chain(error))


def cause_of(error: BaseException) -> str:
    """One line for an error, its cause first."""
    root = _chain(error)[-1]
    text = str(root)
    if is_memory(error):
        used = re.search(r"was ([\d.]+ ?[KMGT]?B used / [\d.]+ ?[KMGT]?B) limit", text)
        return f"a machine is short of memory ({used[1]})" if used else "a machine is short of memory"
    if "connection error code 2" in text:  # how Ray describes a process that ended without a message
        return "a worker process was killed, by a user or by the kernel because memory ran out"
    if isinstance(root, RayActorError):
        return "a worker process died"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("Failure #")]
    if not lines:
        return type(root).__name__
    is_traceback = any(line.startswith(("File ", "ray::", "Traceback")) for line in lines)
    return _short(lines[-1] if is_traceback else lines[0])


def first_error(errors: Sequence[Exception]) -> str:
    """What a user sees if no worker could run some stacks."""
    return f"{len(errors)} stacks could not be run: {cause_of(errors[0])}"


def _chain(error: BaseException) -> list[BaseException]:
    """An error and what it was raised from, the first cause last."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _is_rays(error: BaseException) -> bool:
    """Whether it is of a class of Ray's, or was raised by Ray's code."""
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(str(name).partition(".")[0] in ("ray", "grpc") for name in (type(error).__module__, *frames[-1:]))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
