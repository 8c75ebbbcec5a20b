"""What `launch.stack: auto` finds on this machine, by model and shape of the inputs, and how long it takes.

    python benchmarks/calibration.py [--device cuda]

The last columns: the table kept by hand that the measurement replaced, and a second launch, which asks the Store.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from usual import write_cifar_shaped

from polysweep.sweeps.job import CalibrationJob
from polysweep.sweeps.planning.widths import fitted
from polysweep.sweeps.worker.calibration import calibrate
from polysweep.trainer.config import TrialConfig

SEEDS = 3
CASES: list[tuple[str, str, str, int, int]] = [
    ("resnet8", "1x8x8", "digits", 64, 9), ("mlp", "1x8x8", "digits", 64, 8), ("mlp", "1x8x8", "digits", 128, 8),
    ("resnet8", "3x32x32", "cifar10", 128, 1), ("mlp", "3x32x32", "cifar10", 128, 1),
    ("resnet20", "3x32x32", "cifar10", 128, 1),
]  # fmt: skip


def timed(job: CalibrationJob) -> tuple[float, Any]:
    """Seconds, and the measurement."""
    started = time.perf_counter()
    calibration = calibrate(job)
    return time.perf_counter() - started, calibration


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cases", type=int, default=len(CASES))
    options = parser.parse_args()
    columns = ["model", "inputs", "batch", "ms per row and step at K", "seconds", "K", f"K for {SEEDS} seeds"]
    with tempfile.TemporaryDirectory() as folder:
        write_cifar_shaped(Path(folder))
        table = Table()
        for column in (*columns, "old table", "second launch"):
            table.add_column(column, justify="left" if column in columns[:2] else "right")
        for model, shape, task, batch, old in CASES[: options.cases]:
            config = TrialConfig.parse(
                {"task": task, "model": model, "optimizer": "usam", "scheduler": "polyak", "rho": 0.1, "epochs": 2,
                 "batch_size": batch}
            )  # fmt: skip
            name = f"{model}-{shape}-{batch}"
            job = CalibrationJob(f"{folder}/store", name, config.canonical(), None, False, options.device, folder)
            seconds, calibration = timed(job)
            again, _ = timed(job)
            curve = ", ".join(f"{one['width']}: {1e3 * one['seconds']:.3g}" for one in calibration.widths)
            width = calibration.width
            figures = (f"{seconds:.1f}", str(width), str(fitted(width, SEEDS)), str(old), f"{again:.3f} s")
            table.add_row(model, shape, str(batch), curve, *figures)
        Console(width=150).print(table)


if __name__ == "__main__":
    main()
