"""What a step costs: SAM-Polyak over two bare forward-backward passes of the same plain module, on one core.

Everything is interleaved in one run and given as ratios; `sam-sps` is the published optimizer. The last table is the
cost of a row in a stack of K, which `stack: auto` on a CPU rests on.

    python benchmarks/step.py [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from sam_sps import SAM_SPS
from torch import Tensor, nn
from torch.nn import functional as F

from polysweep.trainer.components.registry import MODELS
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.device import keep_freed_memory
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.images import Images, Normalisation

CASES = (("resnet8", (1, 8, 8), 64), ("resnet20", (3, 32, 32), 128))
WIDTHS = (1, 3, 6, 9, 12)


def task_of(shape: tuple[int, ...]) -> Classification:
    """A task of that input shape; only the shape is looked at."""
    channels, height, width = shape
    few = Images(torch.zeros(2, height, width, channels, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))
    one = torch.ones(channels)
    return Classification(few, None, few, Normalisation(one, one), classes=10)


def stack_of(model: str, shape: tuple[int, ...], width: int = 1) -> Stack:
    """K rows of SAM with the Polyak scheduler."""
    configs = [
        TrialConfig.parse(
            {"task": "digits", "model": model, "optimizer": "sam", "scheduler": "polyak", "rho": 0.1, "seed": seed,
             "weight_decay": 5e-4}
        )
        for seed in range(width)
    ]  # fmt: skip
    stack = Stack(configs, task_of(shape))
    stack.step_sizes.start_epoch(0)
    return stack


def bare(module: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Two forward and backward passes, and nothing else."""
    parameters = list(module.parameters())

    def call() -> None:
        for _ in range(2):
            torch.autograd.grad(F.cross_entropy(module(images), labels), parameters)

    return call


def published(module: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """One step of the authors' optimizer."""
    optimizer = SAM_SPS(module.parameters(), rho=0.1, lambd=1.0)

    def closure() -> Tensor:
        loss = F.cross_entropy(module(images), labels)
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


def ours(stack: Stack, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """One step of a stack: every row on its own copy of the mini-batch."""
    rows = images.expand(stack.width, *images.shape).contiguous()
    targets = labels.expand(stack.width, -1).contiguous()
    first = torch.tensor(0)
    return lambda: stack.step(rows, targets, first) and None


def interleaved(calls: dict[str, Callable[[], None]], rounds: int, repeats: int) -> dict[str, list[float]]:
    """Seconds per call, by name and round: every round times every call once, in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for round_ in range(rounds):
        order = list(calls.items())
        shift = round_ % len(order)
        for name, call in order[shift:] + order[:shift]:  # nobody always comes after the same one
            started = time.perf_counter()
            for _ in range(repeats):
                call()
            seconds[name].append((time.perf_counter() - started) / repeats)
    return seconds


def ratio(a: list[float], b: list[float]) -> float:
    """The median over rounds of a / b: both of one round saw the same machine."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="rounds of the small model (the large one: a quarter)")
    rounds: int = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_memory()  # for everybody: it is not what is compared here
    steps = Table(title="SAM-Polyak step / two bare passes (median over interleaved rounds)")
    for column in ("model", "batch", "rounds", "two bare passes", "polysweep", "sam-sps", "polysweep / sam-sps"):
        steps.add_column(column, justify="left" if column == "model" else "right")
    for model, shape, batch in CASES:
        images, labels = torch.randn(batch, *shape), torch.randint(0, 10, (batch,))
        plain, theirs = (MODELS[model].load()(shape, 10) for _ in range(2))
        small = model == "resnet8"
        calls = {
            "bare": bare(plain, images, labels),
            "ours": ours(stack_of(model, shape), images, labels),
            "theirs": published(theirs, images, labels),
        }
        count = rounds if small else max(rounds // 4, 3)
        times = interleaved(calls, count, 5 if small else 1)
        steps.add_row(
            f"{model} {'x'.join(map(str, shape))}",
            str(batch),
            str(count),
            f"{1e3 * statistics.median(times['bare']):.2f} ms",
            f"{ratio(times['ours'], times['bare']):.3f}",
            f"{ratio(times['theirs'], times['bare']):.3f}",
            f"{ratio(times['ours'], times['theirs']):.3f}",
        )
    Console().print(steps)

    rows = Table(title="cost of a row in a stack of K / in a stack of one: resnet8 1x8x8, batch 64")
    images, labels = torch.randn(64, 1, 8, 8), torch.randint(0, 10, (64,))
    times = interleaved(
        {str(k): ours(stack_of("resnet8", (1, 8, 8), k), images, labels) for k in WIDTHS}, max(rounds // 2, 3), 2
    )
    for k in WIDTHS:
        rows.add_column(f"K = {k}", justify="right")
    rows.add_row(*(f"{ratio(times[str(k)], times['1']) / k:.3f}" for k in WIDTHS))
    Console().print(rows)


if __name__ == "__main__":
    main()
