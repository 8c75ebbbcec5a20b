"""Seconds per epoch and trial of ResNet-20 on CIFAR-shaped data with SAM-Polyak, by width of the stack.

(a) `sam-sps` with torchvision transforms in a DataLoader with all cores, (b) a stack of one, eager, (c) captured as a
CUDA graph, (d) captured stacks, in float32 and bfloat16; peak memory; and the roofline: operations over the measured
matrix rate, bytes over the measured bandwidth. `benchmarks/gpu_check.py` has it in its report.

    python benchmarks/gpu.py [--device cuda] [--steps 50] [--widths 2 4 8 16 32]

Is meant to take less than five minutes on a GPU. `--device cpu --steps 2 --batch 8 --widths 2` runs all of it in small.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from usual import Random, UsualResNet, loader, optimizer_of, steps, write_cifar_shaped

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.stack.bfloat16 import use_bfloat16
from polysweep.trainer.stack.cuda_graph import cuda_graph
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.cifar import CIFAR10
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.train import use_settings_of

EPOCH = 50_000
WARM_UP_STEPS = 3


def configs_of(precision: str, width: int, batch: int) -> list[TrialConfig]:
    """K seeds of SAM with the Polyak scheduler, the paper's settings."""
    return [
        TrialConfig.parse(
            {"task": "cifar10", "model": "resnet20", "optimizer": "sam", "scheduler": "polyak", "rho": 0.1,
             "weight_decay": 5e-4, "precision": precision, "seed": seed, "batch_size": batch}
        )
        for seed in range(width)
    ]  # fmt: skip


def wait(device: str) -> None:
    """Until the device has done what it was told."""
    if device != "cpu":
        torch.cuda.synchronize()


def usual(task: Classification, count: int, batch: int, device: str) -> float:
    """(a): seconds per step of `count` steps."""
    (config,) = configs_of("float32", 1, batch)
    module = UsualResNet().to(device).train()
    data = Random(task.train.images, task.train.labels)
    batches = iter(loader(data, batch, workers=os.cpu_count() or 1, shuffle=True))
    training = steps(module, optimizer_of(module, config), batches, device)
    for _ in islice(training, WARM_UP_STEPS):
        pass
    wait(device)
    started = time.perf_counter()
    for _ in islice(training, count):
        pass
    wait(device)
    return (time.perf_counter() - started) / count


def stack_seconds(task: Classification, configs: list[TrialConfig], count: int, device: str, captured: bool) -> float:
    """(b), (c), (d): seconds per step and trial."""
    use_settings_of(configs[0].precision)
    size = configs[0].batch_size * count
    few = replace(task, train=task.train.first(size).to(torch.device(device), torch.float32))
    stack = Stack(configs, few, device)
    capture = None if not captured else cuda_graph if device != "cpu" else lambda work: work
    runner = EpochRunner(stack, capture)
    stops = iter(range(10**9))
    runner.run(1, 0, lambda: next(stops) >= WARM_UP_STEPS)  # captures
    wait(device)
    result = runner.run(2, count, lambda: False)
    assert result is not None
    runner.close()
    return result.training_seconds / count / len(configs)


def peak_memory(device: str) -> float:
    """GB since the last reset; of the whole process on a CPU."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return torch.cuda.max_memory_allocated() / 1e9


class Traffic(TorchDispatchMode):
    """Adds up the bytes that every operation reads and writes: what an epoch moves if nothing is fused."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if "view" not in str(func) and "detach" not in str(func):
            counted = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, Tensor)]
            self.bytes += sum(t.numel() * t.element_size() for t in counted)
        return out


def roofline(precision: str, batch: int, device: str, size: int) -> tuple[float, str]:
    """Seconds that a step's two passes need at least, and from which figures."""
    module = UsualResNet().to(device).train()
    if precision == "bfloat16":
        use_bfloat16(module, "resnet20", stacked=False)
    images, labels = torch.randn(batch, 3, 32, 32, device=device), torch.zeros(batch, dtype=torch.int64, device=device)

    def both_passes() -> None:
        torch.autograd.grad(F.cross_entropy(module(images).float(), labels), list(module.parameters()))

    with FlopCounterMode(display=False) as flops:
        both_passes()
    with Traffic() as traffic:
        both_passes()
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a = torch.randn(size, size, device=device, dtype=dtype)
    rate = 2 * size**3 / best_of(lambda: a @ a, device)
    bandwidth = 2 * a.numel() * a.element_size() / best_of(a.clone, device)
    operations, moved = 2 * flops.get_total_flops(), 2 * traffic.bytes
    text = (
        f"{operations / 1e9:.1f} GFLOP at {rate / 1e12:.2f} TFLOP/s = {1e3 * operations / rate:.3f} ms, "
        f"{moved / 1e9:.2f} GB unfused at {bandwidth / 1e9:.0f} GB/s = {1e3 * moved / bandwidth:.3f} ms a step"
    )
    return max(operations / rate, moved / bandwidth), text


def best_of(call: Callable[[], object], device: str, rounds: int = 5) -> float:
    """The least seconds of a call."""

    def timed() -> Iterator[float]:
        for _ in range(rounds):
            wait(device)
            started = time.perf_counter()
            call()
            wait(device)
            yield time.perf_counter() - started

    call()
    return min(timed())


def speed(device: str, steps: int, batch: int, widths: Sequence[int]) -> None:
    """Print the table and the rooflines, as Markdown."""
    torch.set_num_threads(1)
    name = "cpu" if device == "cpu" else torch.cuda.get_device_name()
    per_epoch = EPOCH / batch
    table = Table(box=box.MARKDOWN)
    for column in ("", "precision", "K", "s per epoch and trial", "times (a)", "peak GB"):
        table.add_column(column, justify="right" if column not in ("", "precision") else "left")
    with tempfile.TemporaryDirectory() as folder:
        write_cifar_shaped(Path(folder))
        plain = CIFAR10(Path(folder), 0.0)
        baseline = usual(plain, steps, batch, device) * per_epoch
        table.add_row("(a) sam-sps, DataLoader", "float32", "1", f"{baseline:.2f}", "1.0", f"{peak_memory(device):.2f}")
        task = plain.to(torch.device(device), torch.float32)
        cases = [("(b) eager", 1, False), ("(c) captured", 1, True), *(("(d)", k, True) for k in widths)]
        for precision, (label, width, captured) in itertools.product(("float32", "bfloat16"), cases):
            if device != "cpu":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            configs = configs_of(precision, width, batch)
            try:
                seconds = stack_seconds(task, configs, steps, device, captured) * per_epoch
            except torch.OutOfMemoryError:
                table.add_row(label, precision, str(width), "out of memory", "", "")
                continue
            figures = (f"{seconds:.3f}", f"{baseline / seconds:.1f}", f"{peak_memory(device):.2f}")
            table.add_row(label, precision, str(width), *figures)
    print(f"{name}: ResNet-20 3x32x32, batch {batch}, SAM-Polyak")
    Console(width=110).print(table)
    for precision in ("float32", "bfloat16"):
        seconds, text = roofline(precision, batch, device, 1024 if device == "cpu" else 8192)
        print(f"- roofline {precision}: {seconds * per_epoch:.3f} s per epoch and trial: {text}")


def main() -> None:
    """Print the table and the rooflines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--widths", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    options = parser.parse_args()
    speed(options.device, options.steps, options.batch, options.widths)


if __name__ == "__main__":
    main()
