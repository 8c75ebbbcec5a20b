"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
CompareOption = Annotated[
    str | None,
    typer.Option("--compare", help="FIELD whose values are compared, or FIELD=VALUE,VALUE for some of them."),
]
LooksOption = Annotated[str | None, typer.Option("--looks", help="Seeds per cell at each look. [default: 3,5,10,20]")]
MarginOption = Annotated[
    str | None, typer.Option("--margin", help="Cells that differ by less are equivalent, such as '0.2 points'.")
]
ReportOnOption = Annotated[
    str | None,
    typer.Option("--report-on", help="Seeds that report, of a sweep whose own seeds have chosen a tuned parameter."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SpecArgument = Annotated[Path, typer.Argument(metavar="SPEC", help="The sweep spec, a YAML file.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The sweep's name.")]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="A Ray cluster: auto or ray://HOST:10001. [default: a Ray of its own]"),
]
InsecureOption = Annotated[bool, typer.Option("--insecure", help="Accept a cluster that does not demand a token.")]


def whole_numbers(option: str, text: str | None) -> list[int] | None:
    """The numbers of `3,5,10`. Raises `UserError` for anything else."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() for part in parts):
        raise UserError(f"{option}: {brief(text)}; expected whole numbers with commas, such as 3,5,10")
    return [int(part) for part in parts]


def positive_numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """The numbers of `0.05,0.1`. Raises `UserError` for anything else."""
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"{option}: {brief(text)}; expected numbers with commas, such as 0.05,0.1") from None


def compared_field(text: str | None) -> Any:
    """`scheduler`, or `{scheduler: [constant, polyak]}` of `scheduler=constant,polyak`."""
    from polysweep.sweeps.spec.yaml_lines import read_yaml

    name, equals, values = (text or "").partition("=")
    return {name: read_yaml(f"[{values}]", "--compare")[0]} if equals else text


def open_store(root: str) -> Store:
    """The Store of `--store`."""
    from polysweep.sweeps.store.store import Store

    return Store(root)
