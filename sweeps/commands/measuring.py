"""The command that measures what has been trained: probe."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from polysweep.sweeps.commands.options import (
    DEFAULT_STORE,
    AddressOption,
    DataOption,
    InsecureOption,
    NameArgument,
    StoreOption,
    open_store,
    positive_numbers,
)

app = typer.Typer()


@app.command()
def probe(
    name: NameArgument,
    corruptions: Annotated[
        str | None,
        typer.Option(
            "--corruptions", help="Accuracy on corrupted test images instead: all, or some of noise,blur-3,..."
        ),
    ] = None,
    images: Annotated[int | None, typer.Option("--images", help="Training images. [default: 500]")] = None,
    eigenvalues: Annotated[int | None, typer.Option("--eigenvalues", help="How many. [default: 3]")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Of Lanczos. [default: 20]")] = None,
    vectors: Annotated[int | None, typer.Option("--vectors", help="For the trace. [default: 10]")] = None,
    radii: Annotated[str | None, typer.Option("--radii", help="Of the SAM loss. [default: 0.05,0.1,0.2]")] = None,
    precision: Annotated[str | None, typer.Option("--precision", help="float32 or float64. [default: float32]")] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option("--device", help="[default: what the trials were trained on]")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    data_dir: DataOption = None,
    address: AddressOption = None,
    insecure: InsecureOption = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the output of Ray.")] = False,
) -> None:
    """Measure the curvature at the weights of every ended trial. Rerun the same command to resume."""
    from polysweep.sweeps.commands.probe import ProbeOptions, measure_sweep
    from polysweep.trainer.errors import UserError
    from polysweep.trainer.probe.settings import CorruptionSettings, CurvatureSettings, Measurement

    asked: dict[str, Any] = {"images": images, "eigenvalues": eigenvalues, "steps": steps, "vectors": vectors}
    asked["radii"] = positive_numbers("--radii", radii)
    settings: Measurement
    if corruptions is None:
        settings = CurvatureSettings.parse({**asked, "precision": precision})
    elif unused := [f"--{option}" for option, value in asked.items() if value is not None]:
        raise UserError(f"{unused[0]}: is of the curvature; leave it out beside --corruptions")
    else:
        settings = CorruptionSettings.of([part.strip() for part in corruptions.split(",")], precision)
    place = open_store(store)
    place.check_writable()
    options = ProbeOptions(data_dir, address, insecure, verbose, device)
    raise typer.Exit(measure_sweep(name, place, [settings], options))
