"""The arguments and options that several commands of the analysis share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from polysweep.sweeps.commands.options import checked_path
from polysweep.trainer.errors import UserError

SourceArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A sweep's name, or the wandb://ENTITY/PROJECT or .../TAG of a pull.")
]
CacheOption = Annotated[
    str,
    typer.Option(
        "--cache",
        envvar="POLYSWEEP_CACHE",
        callback=checked_path,
        help="Folder where what was read is kept; it may be removed.",
    ),
]
MetricOption = Annotated[str | None, typer.Option("--metric", help="What is reported. [default: the sweep's metric]")]
EpochOption = Annotated[
    str | None, typer.Option("--epoch", help="best (by what selects) or last. [default: best; of retrained runs last]")
]
ByOption = Annotated[
    str | None,
    typer.Option("--select-by", help="What selects epochs and tuned parameters. [default: the sweep's metric]"),
]
PublishedOption = Annotated[
    str | None, typer.Option("--published", help="Published numbers beside ours: cifar, or a CSV file.")
]
SeedsOption = Annotated[
    int, typer.Option("--published-seeds", min=2, help="Seeds behind a published mean, if the CSV does not say.")
]
WhereOption = Annotated[
    list[str] | None, typer.Option("--where", help="FIELD=VALUE, of a field that varies besides the published ones.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", help="FIELD=VALUE[,VALUE...]: cells with one of these values; for several fields repeated."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Of a search: show every point, not the first 20 alone.")]
WidthOption = Annotated[str, typer.Option("--width", help="page, column or screen.")]
DEFAULT_CACHE = "./polysweep-cache"


def split_fields(text: str | None) -> list[str] | None:
    """The parts of `a,b`."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def parse_where(texts: Sequence[str]) -> dict[str, str]:
    """By field its value, of each `FIELD=VALUE`. Raises `UserError` for anything else."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UserError(f"--where: {text!r}; expected FIELD=VALUE, such as gamma_b=1.0")
        values[name] = value
    return values
