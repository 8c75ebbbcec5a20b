"""What a probe costs beside an epoch of training, and how far it is from the exact Hessian of a small model.

    python benchmarks/probe.py

Both in one process with one thread, on the digits: K rows of `resnet8` and of `mlp`, the fastest of three.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn import functional as F

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.probe.probe import probe
from polysweep.trainer.probe.settings import CurvatureSettings
from polysweep.trainer.stack.oracles import build_model
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.streams import stream
from polysweep.trainer.tasks.loading import load_task

ROWS = 8
COMMON: dict[str, Any] = {"task": "digits", "optimizer": "usam", "rho": 0.1, "scheduler": "polyak", "batch_size": 64}


def fastest(run: Callable[[], object]) -> float:
    """Seconds of the fastest of three."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def costs(model: str) -> None:
    """An epoch and a probe of as many rows, in milliseconds a row."""
    configs = [TrialConfig.parse({**COMMON, "model": model, "seed": seed, "epochs": 9}) for seed in range(ROWS)]
    stack = Stack(configs, load_task(configs[0]))
    runner = EpochRunner(stack)
    steps = stack.task.steps_per_epoch(64)
    epoch = fastest(lambda: runner.run(1, steps, lambda: False))
    rows = [{name: stack.row_state(row)[name] for name in ("theta", "floats", "counters")} for row in range(ROWS)]
    measured = fastest(lambda: probe(configs, rows, CurvatureSettings()))
    cifar = measured / epoch * stack.task.size / 50_000
    print(
        f"| {model} | {1e3 * epoch / ROWS:.0f} | {1e3 * measured / ROWS:.0f} | {measured / epoch:.1f} | {cifar:.2f} |"
    )


def differences(precision: str) -> None:
    """Of a perceptron of 4 units after 5 epochs: ours against torch's exact Hessian in float64, on 200 images."""
    values = {**COMMON, "model": "mlp", "model_options": {"hidden": 4, "layers": 1}, "epochs": 5}
    stack = Stack([TrialConfig.parse(values)], load_task(TrialConfig.parse(values)))
    runner = EpochRunner(stack)
    for epoch in range(1, 6):
        runner.run(epoch, (epoch - 1) * stack.task.steps_per_epoch(64), lambda: False)
    theta = stack.theta.double()[0]
    task = load_task(TrialConfig.parse({**values, "precision": "float64"}))
    inputs, labels = task.mini_batch(torch.randperm(task.size, generator=stream(0, "probe"))[None, :200], None, None)
    module = build_model("mlp", values["model_options"], task.input_shape, task.classes, 0).double()
    shapes = {name: parameter.shape for name, parameter in module.named_parameters()}

    def f(flat: torch.Tensor) -> torch.Tensor:
        parts = flat.split([shape.numel() for shape in shapes.values()])
        weights = {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}
        return F.cross_entropy(functional_call(module, weights, (inputs[0],)), labels[0])

    exact = hessian(f, theta)
    top, trace = torch.linalg.eigvalsh(exact).flip(0), float(exact.trace())
    settings = CurvatureSettings(images=200, eigenvalues=3, vectors=100, precision=precision)
    (ours,) = probe(stack.configs, [stack.row_state(0)], settings)
    gaps = [abs(ours[f"curvature/eigenvalue-{n}"] / float(top[n - 1]) - 1) for n in (1, 2, 3)]
    off = (ours["curvature/trace"] - trace) / ours["curvature/trace_se"]
    print(f"| {precision} | {len(theta)} | {' | '.join(f'{gap:.0e}' for gap in gaps)} | {off:+.2f} |")


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    print("| model | epoch, ms a row | probe, ms a row | epochs that a probe costs | the same in epochs of CIFAR |")
    print("|---|---|---|---|---|")
    for model in ("resnet8", "mlp"):
        costs(model)
    print("\n| precision | weights | eigenvalue 1, relative error | 2 | 3 | trace, in standard errors of 100 vectors |")
    print("|---|---|---|---|---|---|")
    for precision in ("float64", "float32"):
        differences(precision)


if __name__ == "__main__":
    main()
