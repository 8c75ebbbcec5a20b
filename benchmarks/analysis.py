"""What the analysis costs: from a large Store, and from W&B beside the loop that people write.

Store: 10,000 trials of 100 epochs are written; then a process of its own, imports and all, goes to the tables and one
robustness plot: once without a cache, then from the cache, then after 20 records have changed. Wall seconds and the
largest resident memory. W&B: the loopback server of the tests has 1,000 runs of 100 epochs; `for run in api.runs():
list(run.scan_history())` beside `pull`, cold and when nothing has changed, alternating in one run. The two have to
agree on every value.

    python benchmarks/analysis.py [--trials 10000] [--runs 1000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from rich.console import Console
from rich.table import Table

sys.path.remove(str(Path(__file__).resolve().parent))  # this file is called like the package that it measures

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import HISTORY_COLUMNS

EPOCHS = 100
LOOK = """
import resource, sys
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot as plt
from polysweep import plot_robustness, pull, select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.layout import subtables
chosen = select(pull("large", store=sys.argv[1], cache=sys.argv[2]))
text = render(chosen, "markdown")
figure, ax = plt.subplots()
plot_robustness(next(iter(subtables(chosen)))[1], chosen.metric, ax)
figure.savefig(sys.argv[3])
print(len(text), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def large_spec(trials: int) -> SweepSpec:
    """1,000 points of three schedulers, with as many seeds as make the number of trials."""
    return SweepSpec.parse(
        json.dumps(
            {
                "name": "large",
                "metric": {"name": "test/top1", "goal": "maximize"},
                "parameters": {
                    "task": {"value": "digits"},
                    "model": {"value": "mlp"},
                    "optimizer": {"values": ["usam", "sam"]},
                    "rho": {"values": [round(0.05 * i, 2) for i in range(1, 11)]},
                    "weight_decay": {"values": [0.0, 1e-4, 5e-4, 1e-3, 5e-3]},
                    "epochs": {"value": EPOCHS},
                },
                "variants": [
                    {"scheduler": {"value": "constant"}, "lr": {"values": [0.001, 0.01, 0.1, 1.0]}},
                    {
                        "scheduler": {"value": "cosine"},
                        "lr": {"values": [0.1, 0.5]},
                        "lr_min": {"values": [0.001, 0.01]},
                    },
                    {"scheduler": {"value": "polyak"}, "gamma_b": {"values": [1.0, 10.0]}},
                ],
                "tuned": ["lr", "lr_min"],
                "seeds": max(1, trials // 1000),
            }
        ),
        "large.yaml",
    )


def fill(root: Path, trials: int) -> list[str]:
    """Write the records and histories of a finished sweep, without the care for a crash that a Store takes."""
    spec = large_spec(trials)
    store = Store(str(root))
    store.write_sweep(spec)
    rng = np.random.default_rng(0)
    for trial in spec.trials:
        folder = root / "trials" / trial.trial_id
        folder.mkdir(parents=True)
        columns: dict[str, Any] = {name: rng.random(EPOCHS) for name in HISTORY_COLUMNS}
        columns |= {f"val/{name}": pa.nulls(EPOCHS, pa.float64()) for name in ("loss", "top1", "top5")}
        columns |= {"epoch": np.arange(1, EPOCHS + 1), "step": np.arange(1, EPOCHS + 1) * 6}
        columns["partial"] = np.zeros(EPOCHS, dtype=bool)
        parquet.write_table(pa.table({name: columns[name] for name in HISTORY_COLUMNS}), folder / "history.parquet")
        record = {
            "format": 1, "trial_id": trial.trial_id, "outcome": "finished", "width": 1, "epoch": EPOCHS, "seconds": 3.0,
            "started": 1.0, "ended": 4.0, "sessions": [{}], "notes": [], "error": None,
            "provenance": {"commit": "c0ffee", "numerics": 1, "versions": {"torch": "2"}, "device": "cpu"},
        }  # fmt: skip
        (folder / "record.json").write_text(json.dumps(record))
    return [trial.trial_id for trial in spec.trials]


def look(root: Path, cache: Path) -> tuple[float, float]:
    """Wall seconds and MB of a process that goes from the Store to tables and a plot."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", LOOK, root, cache, cache.with_suffix(".png")], capture_output=True, text=True, check=True
    )
    return time.perf_counter() - began, int(done.stdout.split()[1]) / 1024


def touch(root: Path, trial_ids: list[str]) -> None:
    """Change records, as a launch that goes on does."""
    store = Store(str(root))
    for trial_id in trial_ids:
        record = dict(store.record(trial_id) or {})
        store.write_record(trial_id, {**record, "seconds": record["seconds"] + 1})


@contextmanager
def server(runs: int) -> Iterator[None]:
    """The loopback server with runs of ours; the environment points at it."""
    rng = random.Random(0)
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.wandb_server", "--port-file", port_file], cwd=root
        )
        try:
            while not port_file.exists():
                time.sleep(0.05)
            url = f"http://127.0.0.1:{port_file.read_text()}"
            os.environ |= {"WANDB_BASE_URL": url, "WANDB_API_KEY": "0123456789" * 4, "WANDB_SILENT": "true"}
            for at in range(0, runs, 100):
                some = [_run(number, rng) for number in range(at, min(at + 100, runs))]
                body = json.dumps({"entity": "lab", "project": "p", "runs": some}).encode()
                urllib.request.urlopen(f"{url}/load", body).close()
            yield
        finally:
            process.kill()
            process.wait()


def _run(number: int, rng: random.Random) -> dict[str, Any]:
    rows = [
        {**{name: rng.random() for name in HISTORY_COLUMNS}, "epoch": epoch, "step": 9 * epoch, "partial": False,
         "_step": epoch, "_timestamp": 1.7e9 + epoch, "_runtime": float(epoch)}
        for epoch in range(1, EPOCHS + 1)
    ]  # fmt: skip
    config = {"rho": 0.1 * (number // 3), "seed": number % 3, "scheduler": "polyak", "lr": 0.1}
    return {
        "name": f"run{number:05d}",
        "config": {key: {"value": value} for key, value in config.items()},
        "history": [json.dumps(row) for row in rows],
        "summary": json.dumps(rows[-1]),
        "complete": True,
        "exit_code": 0,
    }


def loop() -> tuple[float, dict[str, list[float]]]:
    """What people write: seconds, and the test accuracies of every run."""
    import wandb

    began = time.perf_counter()
    api = wandb.Api(timeout=120)
    accuracies = {run.id: [row["test/top1"] for row in run.scan_history()] for run in api.runs("lab/p")}
    return time.perf_counter() - began, accuracies


def pulled(cache: Path) -> tuple[float, dict[str, list[float]]]:
    """The same through `pull`."""
    from polysweep import pull

    began = time.perf_counter()
    runs = pull("wandb://lab/p", cache=cache)
    seconds = time.perf_counter() - began
    groups = runs.columns(["test/top1"]).groupby("trial_id", sort=False)["test/top1"]
    return seconds, {str(name): values.tolist() for name, values in groups}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console = Console(width=100)
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "store", Path(folder) / "cache"
        ids = fill(root, options.trials)
        table = Table(title=f"{len(ids)} trials x {EPOCHS} epochs in the Store: to tables and a robustness plot")
        for column in ("", "wall s", "MB"):
            table.add_column(column)
        seconds, memory = look(root, cache)
        table.add_row("no cache", f"{seconds:.1f}", f"{memory:.0f}")
        for number in range(options.rounds):
            seconds, memory = look(root, cache)
            table.add_row(f"from the cache, {number + 1}", f"{seconds:.1f}", f"{memory:.0f}")
        touch(root, ids[:20])
        seconds, memory = look(root, cache)
        table.add_row("after 20 records have changed", f"{seconds:.1f}", f"{memory:.0f}")
        console.print(table)
    with server(options.runs), tempfile.TemporaryDirectory() as folder:
        table = Table(title=f"{options.runs} runs x {EPOCHS} epochs from the loopback W&B server, seconds")
        for column in ("round", "scan_history loop", "pull, cold", "pull, nothing changed", "loop / cold"):
            table.add_column(column)
        ratios = []
        for number in range(options.rounds):
            cache = Path(folder) / str(number)
            slow, theirs = loop()
            cold, ours = pulled(cache)
            warm, again = pulled(cache)
            assert theirs == ours == again, "the loop and the pull disagree"
            ratios.append(slow / cold)
            table.add_row(str(number + 1), f"{slow:.1f}", f"{cold:.2f}", f"{warm:.2f}", f"{slow / cold:.1f}")
            shutil.rmtree(cache)
        console.print(table)
        console.print(f"loop / cold: median {statistics.median(ratios):.1f}, n = {len(ratios)}")


if __name__ == "__main__":
    main()
