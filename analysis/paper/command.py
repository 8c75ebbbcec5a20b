"""`polysweep paper`: the whole paper in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polysweep.sweeps.commands.options import DEFAULT_STORE, DataOption, StoreOption, WandbOption, open_store

app = typer.Typer()


@app.command()
def paper(
    rehearsal: Annotated[
        bool,
        typer.Option("--rehearsal", help="All of it in small, on the digits: minutes on two cores, no data needed."),
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what is left and what it costs; start nothing.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder of the document.")] = Path("paper"),
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="GPUs per stack: a number, or auto. [default: none]")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    wandb: WandbOption = None,
    data_dir: DataOption = None,
) -> None:
    """Run all experiments of the paper that have not ended, and write them up. Rerun the same command to resume."""
    from polysweep.analysis.paper.run import PaperOptions, run_paper, show_paper
    from polysweep.sweeps.job import LaunchOptions
    from polysweep.trainer.wandb_runs import resolve_mode

    mode = "disabled" if rehearsal and wandb is None else resolve_mode(wandb)
    options = PaperOptions(out, LaunchOptions(mode, data_dir), rehearsal, gpus)
    place = open_store(store)
    if plan:
        show_paper(place, options)
        return
    place.check_writable()
    raise typer.Exit(run_paper(place, options))
