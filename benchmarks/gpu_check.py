"""Whether polysweep does on this GPU what it does on a CPU, and how fast: a Markdown report to paste.

1. Bits: a captured CUDA graph against eager steps, and a resumed trial against one that ran through.
2. A launch of stacks that share the GPU, through Ray, the Store and the command line.
3. K and the share of the GPU, as `launch: {stack: auto, gpus: auto}` measures them.
4. Seconds per epoch and peak memory by K: benchmarks/gpu.py.

    python benchmarks/gpu_check.py [--device cuda]

Is meant to take less than five minutes on one GPU. `--device cpu` runs all of it in small.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from gpu import speed
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor
from usual import write_cifar_shaped

from polysweep import __version__
from polysweep.sweeps.job import CalibrationJob
from polysweep.sweeps.store.provenance import commit
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.calibration import calibrate
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.device import device_model
from polysweep.trainer.train import train

EPOCHS = 3
RULES: list[dict[str, Any]] = [
    {"optimizer": "sam", "scheduler": "polyak", "rho": 0.1},
    {"optimizer": "usam", "scheduler": "cosine", "rho": 0.2, "lr": 0.1, "lr_min": 0.001},
    {"optimizer": "usam", "scheduler": "constant", "rho": 0.0, "lr": 1e9},  # diverges
]
MODELS = ("resnet8", "mlp")


def configs_of(model: str) -> list[TrialConfig]:
    """Rows of one stack on the digits, one of which diverges."""
    base = {"task": "digits", "model": model, "epochs": EPOCHS, "batch_size": 64}
    return [TrialConfig.parse({**base, **rule, "seed": seed}) for seed, rule in enumerate(RULES)]


def thetas(reports: Iterator[Any]) -> dict[tuple[int, int], Tensor]:
    """By row and epoch the parameters."""
    return {(one.row, one.epoch): one.checkpoint()["row"]["theta"] for epoch in reports for one in epoch}


def eager(work: Callable[[], None]) -> Callable[[], None]:
    """In place of a capture: the same work again, kernel by kernel."""
    return work


def bits(device: str) -> Iterator[tuple[str, bool]]:
    """What was compared, and whether every bit is the same."""
    for model in MODELS:
        rows = configs_of(model)
        captured = thetas(train(rows, device=device))
        others = {
            "graph = eager": thetas(train(rows, device=device, capture=eager)),
            "again = first": thetas(train(rows, device=device)),
        }
        for what, other in others.items():
            yield f"{model}: {what}", _are_equal(captured, other)
        first = [report for epoch in islice(train(rows[:2], width=3, device=device), 1) for report in epoch]
        saved = [report.checkpoint() for report in first]
        resumed = thetas(train(rows[:2], width=3, checkpoints=saved, device=device))
        rest = {key: theta for key, theta in captured.items() if key in resumed}
        yield f"{model}: resumed = uninterrupted", len(rest) == 2 * (EPOCHS - 1) and _are_equal(resumed, rest)


def _are_equal(one: dict[tuple[int, int], Tensor], other: dict[tuple[int, int], Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def shared_launch(device: str, folder: Path) -> tuple[str, bool]:
    """A launch of two stacks side by side, each with half of the GPU: how it ended, and whether well."""
    launch: dict[str, Any] = {"stack": 2, "cpus": 1, "gpus": 0.5 if device != "cpu" else 0}
    fixed = {"task": "digits", "model": "resnet8", "optimizer": "usam", "scheduler": "polyak", "epochs": 5}
    parameters = {name: {"value": value} for name, value in fixed.items()} | {"rho": {"values": [0.1, 0.2]}}
    spec = folder / "shared.yaml"
    spec.write_text(json.dumps({"name": "shared", "parameters": parameters, "seeds": 2, "launch": launch}))
    store = Store(str(folder / "store"))
    command = [sys.executable, "-m", "polysweep", "launch", str(spec), "--store", store.root, "--wandb", "disabled"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode:
        raise SystemExit(f"the launch of two stacks failed:\n{done.stdout}\n{done.stderr}")
    records = [record for _, record in store.records(store.files.names("trials")) if isinstance(record, dict)]
    spans = {tuple(record["sessions"][0]["process"]): (record["started"], record["ended"]) for record in records}
    together = min(end for _, end in spans.values()) - max(start for start, _ in spans.values())
    finished = sum(record["outcome"] == "finished" for record in records)
    text = (
        f"{finished} of {len(records)} trials finished in {len(spans)} workers with {launch['gpus']:g} GPUs each, "
        f"{max(0.0, together):.1f} s of it side by side"
    )
    return text, finished == len(records) == 4 and len(spans) == 2 and together > 0


def measurements(device: str, folder: Path) -> Table:
    """K and the share, by model and shape."""
    table = Table("model", "inputs", "K", "GPUs", "rows and steps/s by stacks", "s", "curve: K, ms", box=box.MARKDOWN)
    cases = [("resnet8", "digits", "1x8x8", 64), ("mlp", "digits", "1x8x8", 64)]
    if device != "cpu":
        write_cifar_shaped(folder)
        cases.append(("resnet20", "cifar10", "3x32x32", 128))
    for model, task, shape, batch in cases:
        config = TrialConfig.parse({**RULES[0], "task": task, "model": model, "epochs": 2, "batch_size": batch})
        job = CalibrationJob(str(folder / "store"), model, config.canonical(), None, True, device, str(folder))
        calibration = calibrate(job)
        assert calibration is not None
        rates = ", ".join(f"{count}: {rate:.0f}" for count, rate in calibration.shares.items())
        curve = ", ".join(f"{one['width']}: {1e3 * one['seconds']:.3g}" for one in calibration.widths)
        figures = (str(calibration.width), f"{calibration.share:g}", rates, f"{calibration.seconds:.1f}", curve)
        table.add_row(model, shape, *figures)
    return table


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    if device != "cpu" and not torch.cuda.is_available():
        print("gpu-check: torch finds no GPU here; `--device cpu` runs all of it in small", file=sys.stderr)
        raise SystemExit(2)
    torch.set_num_threads(1)
    began = time.monotonic()
    cuda = "without CUDA" if torch.version.cuda is None else f"CUDA {torch.version.cuda}"
    print(f"# polysweep {__version__} ({(commit() or 'no commit')[:8]}) on {device_model(device)}\n")
    print(f"torch {torch.__version__}, {cuda}, Python {platform.python_version()}\n\n## Bits\n")
    results = dict(bits(device))
    for what, is_same in results.items():
        print(f"- {what}: {'the same bits' if is_same else 'DIFFERENT'}")
    with tempfile.TemporaryDirectory() as name:
        text, results["two stacks on one device"] = shared_launch(device, Path(name))
        print(f"\n## Two stacks on one device\n\n{text}\n\n## K and share, as measured\n")
        Console(width=160).print(measurements(device, Path(name)))
    print("\n## Speed and memory\n", flush=True)
    speed(*((device, 2, 4, [2]) if device == "cpu" else (device, 30, 128, [2, 4, 8, 16, 32])))
    print(f"\n{time.monotonic() - began:.0f} s in all")
    if not all(results.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
