"""The grids of the two `adaptive-*` specs as stacks, beside a plain NumPy loop of the same methods over one trial.

Both see the same problem, the same iterations, and record f as often. `one core`: stack and loop take turns on it, so
that a machine whose speed drifts slows both; a loop's trials all cost the same, so one of each method is timed and
counted as often as the grid has it. `2 cores`: the stacks side by side, one thread each, as a launch runs them, beside
the same loop, which is one process. `lean` is a loop that works on A itself where the batch is full, and draws its
mini-batches in one call; nobody starts with that, but it says how much of the ratio is the stack.

    python benchmarks/theory.py [--iterations T] [--rounds N] [--repeats SEEDS ...]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex.coverage import problem_for
from polysweep.trainer.cpus import usable_cpus
from polysweep.trainer.train import train

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.support import numpy_methods as loops  # noqa: E402

WIDTH = 256
RECORD_EVERY = 100


@dataclass
class Rates:
    """Seconds of the whole grid, by way of running it, round by round."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, way: str, seconds: float) -> None:
        """One round."""
        self.seconds.setdefault(way, []).append(seconds)


class Lean(loops.Loss):
    """The same without copying A where every row is asked for."""

    def value(self, x: Any, batch: Any) -> float:
        """f_S(x)."""
        if len(batch) < self.problem.n:
            return super().value(x, batch)
        residual = self.problem.a @ x - self.problem.b
        return float(residual @ residual / (2 * self.problem.n) + self.problem.lambda_r / 2 * (x @ x))

    def grad(self, x: Any, batch: Any) -> Any:
        """The gradient of f_S at x."""
        if len(batch) < self.problem.n:
            return super().grad(x, batch)
        a = self.problem.a
        return a.T @ (a @ x - self.problem.b) / self.problem.n + self.problem.lambda_r * x


def configs_of(name: str, iterations: int, repeats: int) -> list[TrialConfig]:
    """The configurations of a spec with `repeats` seeds, each of `iterations` steps."""
    spec = SweepSpec.load(ROOT / "sweeps/specs" / f"{name}.yaml")
    configs = []
    for trial in spec.trials:
        values = trial.canonical()
        if values.get("seed", 0):
            continue
        options = {**values["task_options"], "record_every": RECORD_EVERY, "check": False}
        values |= {"task_options": options, "epochs": iterations // RECORD_EVERY}
        configs += [TrialConfig.parse({**values, "seed": seed}) for seed in range(repeats)]
    return configs


def stacks_of(configs: Sequence[TrialConfig]) -> list[list[TrialConfig]]:
    """Rows of one signature, at most `WIDTH` to a stack."""
    groups: dict[str, list[TrialConfig]] = {}
    for config in configs:
        groups.setdefault(config.signature, []).append(config)
    return [rows[at : at + WIDTH] for rows in groups.values() for at in range(0, len(rows), WIDTH)]


def timed_stack(rows: Sequence[TrialConfig]) -> float:
    """Seconds of one stack from nothing to its last record."""
    began = time.perf_counter()
    for _ in train(rows):
        pass
    return time.perf_counter() - began


def loop_of(config: TrialConfig) -> Callable[..., Iterator[Any]]:
    """The NumPy method of a config with its parameters."""
    problem = problem_for(config)
    options = dict(config.optimizer_options)
    if config.optimizer == "usam":
        cap = config.gamma_b or np.inf
        return lambda x, batches: loops.usam(problem, x, batches, config.rho or 0.0, cap=cap)
    if config.optimizer == "sa-sam":
        return lambda x, batches: loops.sasam(problem, x, batches, config.lr or 0.0)
    method = getattr(loops, {"adasam": "adasam", "lightsam-i": "lightsam1", "lightsam-ii": "lightsam2"}.get(
        config.optimizer, "lightsam3"))  # fmt: skip
    return lambda x, batches: method(problem, x, batches, config.lr, config.rho, **options)


def timed_loop(config: TrialConfig, iterations: int, loss: type[loops.Loss], *, lean: bool) -> float:
    """Seconds of one trial as a loop."""
    problem = problem_for(config)
    rng = np.random.default_rng(config.seed)
    x = rng.standard_normal(problem.d)
    everything = np.arange(problem.n)

    def drawn() -> Iterator[Any]:
        if config.batch_size == problem.n:
            yield from (everything for _ in range(iterations))
        elif lean:
            keys = rng.random((iterations, problem.n))
            yield from np.argpartition(keys, config.batch_size, axis=1)[:, : config.batch_size]
        else:
            yield from (rng.choice(problem.n, size=config.batch_size, replace=False) for _ in range(iterations))

    record = loss(problem)
    usual, loops.Loss = loops.Loss, loss  # type: ignore[misc]
    began = time.perf_counter()
    try:
        for t, new in enumerate(loop_of(config)(x, drawn()), start=1):
            if t % RECORD_EVERY == 0:
                record.value(new, everything)
    finally:
        loops.Loss = usual  # type: ignore[misc]
    return time.perf_counter() - began


def one_stack(rows: Sequence[TrialConfig]) -> float:
    """`timed_stack` in a process of its own, with one thread."""
    torch.set_num_threads(1)
    return timed_stack(rows)


def measure(name: str, iterations: int, rounds: int, repeats: int, pool: ProcessPoolExecutor) -> Rates:
    """All ways of running the grid of a spec, taking turns."""
    configs = configs_of(name, iterations, repeats)
    stacks = stacks_of(configs)
    samples = {config.optimizer: config for config in configs}
    counts = Counter(config.optimizer for config in configs)
    rates = Rates()
    few = [rows[:8] for rows in stacks]
    for rows in few:
        timed_stack(rows)  # imports, allocator, problem
    list(pool.map(one_stack, few * 2))
    for _ in range(rounds):
        seconds = Counter[str]()
        for rows in stacks:
            seconds["one core"] += timed_stack(rows)
            config = samples[rows[0].optimizer]
            for way, loss in (("loop", loops.Loss), ("lean", Lean)):
                once = timed_loop(config, iterations, loss, lean=way == "lean")
                seconds[way] += once * len(rows)
        assert sum(counts.values()) == sum(map(len, stacks))
        began = time.perf_counter()
        list(pool.map(one_stack, sorted(stacks, key=len, reverse=True)))
        seconds["all cores"] = time.perf_counter() - began
        for way, total in seconds.items():
            rates.add(way, total)
    return rates


def main() -> None:
    """Print every grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, nargs="+", default=[5, 20])
    options = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # of NumPy's BLAS
    cores = usable_cpus()
    table = Table(
        "grid", "repeats", "trials", "largest K", "iterations x trials / s, one core", f"{cores} cores", "NumPy loop",
        "lean loop", "one core / loop", f"{cores} cores / loop", f"{cores} cores / lean",
    )  # fmt: skip
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        for repeats in options.repeats:
            for name in ("adaptive-deterministic", "adaptive-stochastic"):
                rates = measure(name, options.iterations, options.rounds, repeats, pool).seconds
                configs = configs_of(name, options.iterations, repeats)
                work = len(configs) * options.iterations
                speeds = [
                    f"{work / statistics.median(rates[way]):,.0f}" for way in ("one core", "all cores", "loop", "lean")
                ]
                ratios = [
                    _ratio(rates[a], rates[b])
                    for a, b in (("loop", "one core"), ("loop", "all cores"), ("lean", "all cores"))
                ]
                widest = max(map(len, stacks_of(configs)))
                table.add_row(name, str(repeats), str(len(configs)), str(widest), *speeds, *ratios)
    console = Console(width=190)
    console.print(table)
    rounds = f"n = {options.rounds} rounds of {options.iterations} iterations"
    console.print(f"{rounds}, one torch and BLAS thread a process")


def _ratio(slow: Sequence[float], fast: Sequence[float]) -> str:
    pairs = [a / b for a, b in zip(slow, fast, strict=True)]
    return f"{statistics.median(pairs):.1f} ({min(pairs):.1f} to {max(pairs):.1f})"


if __name__ == "__main__":
    main()
