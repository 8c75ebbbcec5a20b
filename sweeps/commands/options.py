"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polysweep.trainer.components.options import path_text
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import brief

if TYPE_CHECKING:
    from polysweep.sweeps.store.store import Store

DEFAULT_STORE = "./polysweep-store"


def checked_path(param: typer.CallbackParam, value: str | None) -> str | None:
    """What an option names as a path. Raises `UserError` for what can be none."""
    try:
        return value if value is None else path_text(value)
    except ValueError as error:
        raise UserError(f"{param.opts[0]} {brief(value)}: {error}") from None


StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="POLYSWEEP_STORE",
        callback=checked_path,
        help="Folder or s3:// address of the durable trial records.",
    ),
]
WandbOption = Annotated[
    str | None,
    typer.Option("--wandb", help="online, offline or disabled. [default: online if logged in, else offline]"),
]
WandbSweepOption = Annotated[
    bool, typer.Option("--wandb-sweep", help="Register it as a W&B Sweep, once, so that the sweep's page has its runs.")
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        envvar="POLYSWEEP_DATA",
        callback=checked_path,
        help="Folder of the data sets. [default: launch.data_dir, else ./polysweep-data]",
    ),
]
CountOption = Annotated[
    int | None,
    typer.Option("--count", min=1, help="Trials in all of a random or bayes sweep whose spec has no run_cap."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SpecArgument = Annotated[Path, typer.Argument(metavar="SPEC", help="The sweep spec, a YAML file.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The sweep's name.")]
InsecureOption = Annotated[bool, typer.Option("--insecure", help="Accept a cluster that does not demand a token.")]


def open_store(root: str) -> Store:
    """The Store of `--store`."""
    from polysweep.sweeps.store.store import Store

    return Store(root)
