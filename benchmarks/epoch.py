"""One CIFAR-shaped epoch of ResNet-20 with SAM-Polyak on one core, beside the same epoch written the usual way.

Usual: `sam-sps`, torchvision transforms, a DataLoader with two workers (on the other cores), contiguous float32. Same
initial weights, order, crops and flips. Every round runs each variant once, in a process of its own; the clock starts
after the first mini-batch, and evaluation is not in it.

    python benchmarks/epoch.py [--images 2560] [--rounds 5]     an epoch of the first 2,560 training images
    python benchmarks/epoch.py --trial float32                   peak memory of a whole CIFAR trial of one epoch
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from usual import Drawn, UsualResNet, closure_of, loader, optimizer_of, steps, write_cifar_shaped

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.device import keep_freed_memory
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.streams import epoch_order
from polysweep.trainer.tasks.augmentation import epoch_draws
from polysweep.trainer.tasks.cifar import CIFAR10
from polysweep.trainer.tasks.classification import Classification

VARIANTS = ("usual float32", "ours float32", "ours bfloat16")
COMPARED_STEPS = 5


def config_of(precision: str) -> TrialConfig:
    """SAM with the Polyak scheduler, the paper's settings."""
    return TrialConfig.parse(
        {"task": "cifar10", "model": "resnet20", "optimizer": "sam", "scheduler": "polyak", "rho": 0.1,
         "weight_decay": 5e-4, "precision": precision}
    )  # fmt: skip


def task_of(data: Path, images: int) -> Classification:
    """CIFAR-shaped data whose training set is the first `images`."""
    task = CIFAR10(data, 0.0)
    return replace(task, train=task.train.first(images))


def load_row(module: nn.Module, stack: Stack) -> None:
    """Put the stack's only row into a plain module of the same layout."""
    nn.utils.vector_to_parameters(stack.theta[0].clone(), module.parameters())
    floats = [b for b in module.buffers() if b.is_floating_point()]
    with torch.no_grad():
        for buffer, part in zip(floats, stack.buffers.floats[0].split([b.numel() for b in floats]), strict=True):
            buffer.copy_(part.view(buffer.shape))


def usual_epoch(data: Path, images: int) -> dict[str, float]:
    """The epoch as everybody writes it."""
    config, task = config_of("float32"), task_of(data, images)
    module = UsualResNet()
    load_row(module, Stack([config], task))
    batches = iter(loader(Drawn(config, task.train.images, task.train.labels, images), 128, workers=2, shuffle=False))
    training = steps(module.train(), optimizer_of(module, config), batches)
    losses = [next(training)]
    started = time.perf_counter()
    losses += training
    seconds = time.perf_counter() - started
    return {"seconds per image": seconds / (images - 128), "loss": statistics.fmean(losses)}


def our_epoch(data: Path, images: int, precision: str) -> dict[str, float]:
    """The epoch as the trainer runs it."""
    config = config_of(precision)
    keep_freed_memory()  # as `trainer.train` does
    stack = Stack([config], task_of(data, images))
    runner = EpochRunner(stack)
    stops = iter(range(10**9))
    clock: list[float] = []

    def stop() -> bool:
        if next(stops) == 1:
            clock.append(time.perf_counter())
        return False

    result = runner.run(1, 0, stop)
    assert result is not None
    seconds = time.perf_counter() - clock[0]
    loss = (result.sums.means[0, 0] / result.sums.steps[0]).item()
    return {"seconds per image": seconds / (images - 128), "loss": loss}


def largest_difference(data: Path) -> float:
    """From the same state, step by step: the largest relative difference of the two losses of a step at x and at e."""
    config = config_of("float32")
    stack, module = Stack([config], task_of(data, 128 * COMPARED_STEPS)), UsualResNet().train()
    stack.step_sizes.start_epoch(0)
    order = epoch_order([0], 1, 128 * COMPARED_STEPS)
    draws = epoch_draws([0], 1, 128 * COMPARED_STEPS, (3, 32, 32))
    usual = Drawn(config, stack.task.train.images, stack.task.train.labels, 128 * COMPARED_STEPS)
    worst = 0.0
    for step, (images, labels) in enumerate(loader(usual, 128, workers=0, shuffle=False)):
        load_row(module, stack)
        seen: list[torch.Tensor] = []
        optimizer_of(module, config).step(closure_of(module, images, labels, seen))
        part = slice(128 * step, 128 * (step + 1))
        batch = stack.task.mini_batch(order[:, part], draws[:, part], "crop+flip")
        assert torch.equal(batch[0][0], images), "the same pixels, to the bit"
        done = stack.step(*batch, torch.tensor(step)).result
        for ours, theirs in zip((done.x.loss, done.e.loss), seen, strict=True):
            worst = max(worst, abs(ours.item() - theirs.item()) / abs(theirs.item()))
    return worst


def child(variant: str, data: Path, images: int) -> dict[str, float]:
    """Run one variant in a process of its own."""
    command = [sys.executable, __file__, "--variant", variant, "--data", str(data), "--images", str(images)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    times: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return times


def trial_memory(data: Path, precision: str) -> None:
    """Run `polysweep train` for one epoch of 50,000 images, and print the most memory that it had."""
    command = [
        str(Path(sys.executable).with_name("polysweep")), "train", "task=cifar10", "model=resnet20", "optimizer=sam",
        "scheduler=polyak", "rho=0.1", "epochs=1", f"precision={precision}", "--data-dir", str(data), "--store",
        str(data / "store"), "--wandb", "disabled",
    ]  # fmt: skip
    started = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, "the trial failed"
    seconds = time.perf_counter() - started
    print(f"{precision}: one epoch of a CIFAR trial: {usage.ru_maxrss / 1e6:.2f} GB at most, {seconds:.0f} s")


def main() -> None:
    """Print the table, or one child's figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2560, help="of an epoch; all are 50000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trial", choices=("float32", "bfloat16"))
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.variant:
        name, _, precision = options.variant.partition(" ")
        run = usual_epoch if name == "usual" else our_epoch
        arguments = () if name == "usual" else (precision,)
        print(json.dumps(run(options.data, options.images, *arguments)))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_cifar_shaped(data)
        if options.trial:
            trial_memory(data, options.trial)
            return
        results: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
        for round_ in range(options.rounds):
            for name in VARIANTS[round_ % 3 :] + VARIANTS[: round_ % 3]:
                results[name].append(child(name, data, options.images))
        difference = largest_difference(data)
    table = Table(title=f"ResNet-20 3x32x32, batch 128, SAM-Polyak, one core ({options.rounds} rounds)")
    for column in ("", "s per 50,000 images", "minimum", "maximum", "times as fast", "mean train/loss"):
        table.add_column(column, justify="left" if not column else "right")
    usual = [one["seconds per image"] for one in results[VARIANTS[0]]]
    for name in VARIANTS:
        seconds = [one["seconds per image"] for one in results[name]]
        table.add_row(
            name,
            *(f"{50_000 * f(seconds):.0f}" for f in (statistics.median, min, max)),
            f"{statistics.median(a / b for a, b in zip(usual, seconds, strict=True)):.2f}",
            f"{statistics.fmean(one['loss'] for one in results[name]):.5f}",
        )
    Console().print(table)
    print(f"float32, {COMPARED_STEPS} steps from equal states: losses differ by at most {difference:.1e} (relative)")


if __name__ == "__main__":
    main()
