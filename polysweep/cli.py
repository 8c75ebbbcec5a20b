"""The `polysweep` command: the commands of sweeps and of the analysis in one app.

Every user error is one line and exit code 2, without a traceback.
"""

from __future__ import annotations

import logging
import signal
import sys
from typing import Annotated

import typer

from polysweep import __version__
from polysweep.analysis.commands import app as analysis_app
from polysweep.analysis.paper.command import app as paper_app
from polysweep.sweeps.commands.app import app as sweeps_app
from polysweep.sweeps.commands.measuring import app as measuring_app
from polysweep.sweeps.console import PrintableFormatter
from polysweep.sweeps.worker.signals import Interruption
from polysweep.trainer.components.registry import import_paths
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import printable

app = typer.Typer(
    name="polysweep",
    help="Sweeps over sharpness-aware optimizers: plan, launch, submit, status, replicate, probe, stop, logs, "
    "sync, pull, table, plot, compare, report, dashboard, paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point: errors of the user and interruptions become exit codes."""
    interruption = Interruption.of_process()
    interruption.install(for_process=True)
    sys.path += import_paths()
    if logging.lastResort is not None:  # what prints the warnings of a program that sets up no logging
        logging.lastResort.setFormatter(PrintableFormatter())
    try:
        app()
    except BaseException as error:
        if interruption.signal:  # it can interrupt anything anywhere, and become another error
            interruption.exit()
        if isinstance(error, UserError):
            print(f"error: {printable(error.shown)}", file=sys.stderr)
            if interruption.lost:
                interruption.exit()
            sys.exit(2)
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()  # the reader of our output has gone, as `head` does
            sys.exit(128 + signal.SIGPIPE)
        raise


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"polysweep {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before a command."""


app.add_typer(sweeps_app)
app.add_typer(measuring_app)
app.add_typer(analysis_app)
app.add_typer(paper_app)
