"""What the sweep service costs: per trial beside bare Ray Tune, and for plans and sweeps that are large.

Per trial: the slope of wall time between 50 and 400 trials, and start-up apart. Each trial is one epoch of one
mini-batch in a stack of its own, with Store and offline W&B. Bare Tune runs as many class Trainables that do nothing
but import torch, with reused actors. Large: `plan` of 100,000 trials beside a Store that has 10,000 of them, `status`
and a second `launch` of a sweep of 10,000 finished trials: wall seconds and the largest resident memory.

    python benchmarks/sweep.py [--few 50] [--many 400] [--planned 100000] [--finished 10000]
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

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.cpus import usable_cpus

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


def grid(trials: int, seeds: int) -> dict[str, object]:
    """A spec of `trials` near-zero trials: radii, decays and seeds."""
    decays = 10
    fixed = {"task": "digits", "model": "mlp", "optimizer": "usam", "scheduler": "polyak", "epochs": 1,
             "batch_size": 1437}  # fmt: skip
    swept = {
        "rho": {"values": [k / 1e4 for k in range(1, trials // (decays * seeds) + 1)]},
        "weight_decay": {"values": [k / 1e4 for k in range(decays)]},
    }
    return {"parameters": {**{k: {"value": v} for k, v in fixed.items()}, **swept}, "seeds": seeds}


def large(planned: int, finished: int, folder: Path) -> list[tuple[str, float, float]]:
    """Wall seconds and MB of `plan`, and of `status` and `launch` where all has ended."""
    small, wide = folder / "finished.yaml", folder / "planned.yaml"
    small.write_text(json.dumps(grid(finished, 10)))
    wide.write_text(json.dumps(grid(planned, 100)))
    store = folder / "large"
    pretend(SweepSpec.load(small), store)
    command, silent = Path(sys.executable).with_name("polysweep"), ("--wandb", "disabled")
    rows = [
        (f"plan of {planned:,} trials, empty Store", [command, "plan", wide, "--store", folder / "empty"]),
        (f"plan of {planned:,} trials, Store of {finished:,}", [command, "plan", wide, "--store", store]),
        (f"status of {finished:,} finished trials", [command, "status", "finished", "--store", store]),
        (
            f"launch of {finished:,} finished trials",
            [command, "launch", small, "--store", store, *silent],
        ),
    ]
    return [(name, *measured(line)) for name, line in rows]


def pretend(spec: SweepSpec, store: Path) -> None:
    """Records of finished trials as a launch leaves them, written without its fsyncs."""
    one = {"parameters": {k: {"value": v} for k, v in spec.trials[0].config.canonical().items()}}
    (store.parent / "one.yaml").write_text(json.dumps(one))
    subprocess.run(
        [Path(sys.executable).with_name("polysweep"), "launch", store.parent / "one.yaml", "--store", store,
         "--wandb", "disabled"], check=True, capture_output=True,
    )  # fmt: skip
    trained = store / "trials" / spec.trials[0].trial_id
    record = json.loads((trained / "record.json").read_text())
    for trial in spec.trials[1:]:
        target = store / "trials" / trial.trial_id
        target.mkdir()
        for name in ("history.parquet", "claim-1.json"):
            (target / name).write_bytes((trained / name).read_bytes())
        (target / "record.json").write_text(json.dumps({**record, "trial_id": trial.trial_id}, indent=1))
        (target / "config.json").write_text(json.dumps(trial.config.canonical()))
    Store(str(store)).write_sweep(spec)


def measured(command: list[object]) -> tuple[float, float]:
    """Wall seconds and the largest resident memory in MB of a command that must succeed."""
    started = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, command
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=50)
    parser.add_argument("--many", type=int, default=400)
    parser.add_argument("--planned", type=int, default=100_000)
    parser.add_argument("--finished", type=int, default=10_000)
    options = parser.parse_args()
    few, many = options.few, options.many
    with tempfile.TemporaryDirectory() as folder:
        sizes = large(options.planned, options.finished, Path(folder))
        walls = {
            "bare Ray Tune": [timed([sys.executable, "-c", BARE, n]) for n in (few, many)],
            "polysweep": [polysweep(n, Path(folder)) for n in (few, many)],
        }
    table = Table(title=f"near-zero trials, {usable_cpus()} cores")
    for column in ("", f"{few} trials", f"{many} trials", "per trial (slope)", "start-up"):
        table.add_column(column, justify="right" if column else "left")
    for name, (low, high) in walls.items():
        slope = (high - low) / (many - few)
        table.add_row(name, f"{low:.1f} s", f"{high:.1f} s", f"{slope:.3f} s", f"{low - few * slope:.1f} s")
    Console().print(table)
    table = Table(title="large sweeps")
    for column in ("", "seconds", "largest memory"):
        table.add_column(column, justify="right" if column else "left")
    for name, seconds, megabytes in sizes:
        table.add_row(name, f"{seconds:.1f} s", f"{megabytes:.0f} MB")
    Console().print(table)


if __name__ == "__main__":
    main()
