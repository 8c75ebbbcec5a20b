"""A `polysweep` command in a process of its own, as Python code calls it.

A launch needs Ray, signal handlers, settings in the environment, and the right to end its process in time. A notebook
keeps its own: only the command's process has them, and whatever happens to it, the notebook's data is safe.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Final

from polysweep.trainer.errors import UserError

ERROR: Final = "error: "
"""How the command's line for an error of the user begins."""
USER_ERROR: Final = 2
CRASHED: Final = 70  # exit code of a command that ends with a traceback
INTERRUPTED: Final = (128 + signal.SIGINT, -signal.SIGINT)
CALLER_PATH: Final = "POLYSWEEP_CALLER_PATH"
"""The variable with the folders in which the caller finds modules: its own parts may be beside its script."""
ENDED: Final = (0, 1, 128 + signal.SIGTERM)
"""Exit codes of a command that did its work: all is well; some trials failed; somebody asked it to stop."""


def run_command(*arguments: str) -> None:
    """Run `polysweep ARGUMENTS` to its end; what it prints goes to stderr, line by line.

    Ctrl-C (or any other exception here) interrupts the command, which saves what it has; a second one kills it.

    Raises `UserError` with the command's own message, `KeyboardInterrupt` once an interrupted command has ended, and
    `RuntimeError` if it crashed.
    """
    with subprocess.Popen(
        # -P: a module in the working directory must not stand in for an installed one.
        [sys.executable, "-P", "-m", __name__, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, CALLER_PATH: os.pathsep.join(str(Path(folder).absolute()) for folder in sys.path if folder)},
        start_new_session=True,  # a terminal's Ctrl-C comes here only, and is passed on once
    ) as process:
        try:
            message = _echo(process)
        except BaseException:
            process.send_signal(signal.SIGINT)
            try:
                _echo(process)
            finally:
                process.kill()
            raise
    if process.returncode == USER_ERROR:
        raise UserError(message.removeprefix(ERROR))
    if process.returncode in INTERRUPTED:
        raise KeyboardInterrupt
    if process.returncode not in ENDED:
        raise RuntimeError(f"polysweep {arguments[0]} broke down (exit code {process.returncode}); see its output")


def _echo(process: subprocess.Popen[str]) -> str:
    """Show what the command prints until it ends, all but its error; returns the error, or else the last line."""
    assert process.stdout is not None
    error = line = ""
    for line in process.stdout:
        if line.startswith(ERROR):
            error = line
        else:
            sys.stderr.write(line)
            sys.stderr.flush()
    process.wait()
    return (error or line).strip()


def _main() -> None:
    """The command in its own process."""
    from polysweep.__main__ import main

    folders = os.environ.pop(CALLER_PATH, "").split(os.pathsep)
    sys.path += [folder for folder in folders if folder and folder not in sys.path]
    try:
        main()
    except Exception:
        traceback.print_exc()
        sys.exit(CRASHED)


if __name__ == "__main__":
    _main()
