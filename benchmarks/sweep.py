"""What the sweep service costs per trial: near-zero work with Store and offline W&B, beside bare Ray Tune.

The slope of wall time between 50 and 400 trials, and start-up apart. Each trial is one epoch of one
mini-batch in a stack of its own. Bare Tune runs as many class Trainables that do nothing but import torch, with reused
actors.

    python benchmarks/sweep.py [--few 50] [--many 400]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

BARE = """
import os, sys, tempfile
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
                  RAY_AUTH_MODE="disabled",
                  TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1", RAY_AIR_NEW_OUTPUT="0",
                  RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
import ray
from ray import tune

class Nothing(tune.Trainable):
    def step(self):
        import torch
        return {"done": True}
    def reset_config(self, new_config):
        return True

with tempfile.TemporaryDirectory() as folder:
    ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=folder)
    tune.Tuner(
        tune.with_resources(Nothing, {"cpu": 1}),
        param_space={"index": tune.grid_search(list(range(int(sys.argv[1]))))},
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(
            storage_path=folder, verbose=0, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False)
        ),
    ).fit()
    ray.shutdown()
"""


def polysweep(trials: int, folder: Path) -> float:
    """Wall seconds of `polysweep launch` over that many trials."""
    spec = folder / f"near-zero-{trials}.yaml"
    fixed = {"task": "digits", "model": "mlp", "optimizer": "usam", "scheduler": "polyak", "rho": 0.1,
             "epochs": 1, "batch_size": 1437}  # fmt: skip
    spec.write_text(
        json.dumps({"parameters": {k: {"value": v} for k, v in fixed.items()}, "seeds": trials, "launch": {"stack": 1}})
    )
    store = folder / f"store-{trials}"
    command = [Path(sys.executable).with_name("polysweep"), "launch", spec, "--store", store, "--wandb", "offline"]
    seconds = timed(command)
    finished = list(store.glob("wandb/offline-run-*"))
    assert len(finished) == trials, f"{len(finished)} of {trials} offline runs"
    return seconds


def timed(command: list[object]) -> float:
    """Wall seconds of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=50)
    parser.add_argument("--many", type=int, default=400)
    options = parser.parse_args()
    few, many = options.few, options.many
    with tempfile.TemporaryDirectory() as folder:
        walls = {
            "bare Ray Tune": [timed([sys.executable, "-c", BARE, n]) for n in (few, many)],
            "polysweep": [polysweep(n, Path(folder)) for n in (few, many)],
        }
    table = Table(title=f"near-zero trials, {len(os.sched_getaffinity(0))} cores")
    for column in ("", f"{few} trials", f"{many} trials", "per trial (slope)", "start-up"):
        table.add_column(column, justify="right" if column else "left")
    for name, (low, high) in walls.items():
        slope = (high - low) / (many - few)
        table.add_row(name, f"{low:.1f} s", f"{high:.1f} s", f"{slope:.3f} s", f"{low - few * slope:.1f} s")
    Console().print(table)


if __name__ == "__main__":
    main()
