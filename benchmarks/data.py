"""Images per second of the training data: resident and augmented on the device, beside a DataLoader.

Random crop, flip and normalisation of CIFAR-shaped images in mini-batches of 128, one torch thread; interleaved rounds
in one run. The DataLoader has two worker processes, warm when the clock starts.

    python benchmarks/data.py [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from usual import Random, loader, write_cifar_shaped

from polysweep.trainer.streams import epoch_order
from polysweep.trainer.tasks.augmentation import epoch_draws
from polysweep.trainer.tasks.cifar import CIFAR10
from polysweep.trainer.tasks.classification import Classification

BATCH = 128


def ours(task: Classification, epoch: int, batches: int, device: str) -> float:
    """Images per second of `batches` mini-batches, the epoch's draws counted in proportion."""
    started = time.perf_counter()
    size = len(task.train)
    order = epoch_order([0], epoch, size).to(device)
    draws = epoch_draws([0], epoch, size, task.input_shape).to(device)
    drawn = time.perf_counter() - started
    started = time.perf_counter()
    for index in range(batches):
        part = slice(index * BATCH, (index + 1) * BATCH)
        task.mini_batch(order[:, part], draws[:, part], "crop+flip")
    if device != "cpu":
        torch.cuda.synchronize()
    return batches * BATCH / (time.perf_counter() - started + drawn * batches * BATCH / size)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=60, help="mini-batches in a round")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_cifar_shaped(Path(folder))
        task = CIFAR10(Path(folder), 0.0).to(torch.device(options.device), torch.float32)
        plain = CIFAR10(Path(folder), 0.0)
        usual = loader(Random(plain.train.images, plain.train.labels), BATCH, workers=2, shuffle=True)
        by_loader: dict[str, list[float]] = {"DataLoader, 2 workers": [], "polysweep": []}
        ours(task, 1, options.batches, options.device)
        for round_ in range(options.rounds):
            batches = iter(usual)
            for _ in islice(batches, 4):
                pass  # the workers have started, and their queues are full
            started = time.perf_counter()
            for _ in islice(batches, options.batches):
                pass
            by_loader["DataLoader, 2 workers"].append(options.batches * BATCH / (time.perf_counter() - started))
            del batches
            by_loader["polysweep"].append(ours(task, round_ + 1, options.batches, options.device))
    table = Table(title=f"CIFAR-shaped training images per second ({options.rounds} interleaved rounds)")
    for column in ("", "median", "minimum", "maximum", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    for name, rates in by_loader.items():
        ratio = statistics.median(a / b for a, b in zip(rates, by_loader["DataLoader, 2 workers"], strict=True))
        table.add_row(name, *(f"{f(rates):,.0f}" for f in (statistics.median, min, max)), f"{ratio:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
