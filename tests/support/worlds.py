"""Sweeps of the paper's CIFAR tables whose truth is known: in memory for many worlds, in a Store for the commands.

python -m tests.support.worlds 400      # the table of rates: how often each verdict falls in each world
"""

from __future__ import annotations

import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from polysweep.analysis.data.frames import RunSet, SelectionRule, frame, to_arrow
from polysweep.analysis.published.cells import load_published
from polysweep.analysis.published.claims import BEST, DROPS_LESS, FALLS_OFF, SAFEGUARD, STEP_SIZE
from polysweep.analysis.published.comparison import compare
from polysweep.analysis.tables.statistics import FAILS, HOLDS
from tests.support.made import ONE_TABLE

FIELDS: Final = ("optimizer", "model", "task", "weight_decay", "rho")
CANDIDATES: Final = {
    "constant": ({"lr": 0.1}, {"lr": 0.01}, {"lr": 0.001}),
    "cosine": ({"lr": 0.1, "lr_min": 0.001}, {"lr": 0.1, "lr_min": 0.01}),
    "polyak": ({"gamma_b": 1.0},),
}
Truth = Callable[[Mapping[str, Any], int], float]
"""By cell and place of the candidate, the true mean in percent."""


def _published() -> dict[tuple[Any, ...], tuple[float, float]]:
    cells = load_published("cifar").cells.rename(columns={"dataset": "task"})
    return {
        tuple(cell[name] for name in (*FIELDS, "scheduler")): (cell["test_accuracy_mean"], cell["test_accuracy_std"])
        for cell in cells.to_dict("records")
    }


PRINTED: Final = _published()


def printed(cell: Mapping[str, Any], scheduler: str = "") -> tuple[float, float]:
    """The printed mean and std of a cell, or of its neighbour with another scheduler."""
    return PRINTED[(*[cell[name] for name in FIELDS], scheduler or cell["scheduler"])]


def paper(cell: Mapping[str, Any], candidate: int) -> float:
    """The paper is exactly true: the first candidate of a cell has its printed mean, others are behind."""
    return printed(cell)[0] - 3.0 * candidate


def no_difference(cell: Mapping[str, Any], _candidate: int) -> float:
    """No cell and no candidate differs from any other."""
    return 90.0 if cell["task"] == "cifar10" else 70.0


def opposite(cell: Mapping[str, Any], candidate: int) -> float:
    """The roles turned round: Polyak has the constant step size's means, which has Polyak's with 0.01, not 0.1."""
    other = {"constant": "polyak", "cosine": "cosine", "polyak": "constant"}[cell["scheduler"]]
    best = 1 if cell["scheduler"] == "constant" else 0
    turned = printed(cell, other)[0] - 3.0 * (candidate != best)
    return turned if cell["scheduler"] != "cosine" else 2 * 90 - turned


@dataclass(frozen=True)
class World:
    """A truth, the std of a seed, and what becomes of single runs."""

    truth: Truth
    std: Callable[[Mapping[str, Any]], float] = lambda cell: printed(cell)[1]
    n: int = 3
    outcomes: Mapping[int, str] = field(default_factory=dict)  # by place of the run, other than `finished`
    stalled: float = 0.0  # the share of Polyak trials that the safeguard holds to the end
    digits: int = 12  # to which accuracies are rounded
    task: str = ""  # only one of the two


def drawn(world: World, rng: np.random.Generator) -> RunSet:
    """One draw of a world: `runs` as a pull has them. Top-5 is saturated on CIFAR-10, on CIFAR-100 it is the top-1."""
    grid = itertools.product(("usam", "sam"), ("resnet20", "resnet32"), ("cifar10", "cifar100"), (0.0, 5e-4),
                             (0.1, 0.2, 0.3, 0.4), CANDIDATES)  # fmt: skip
    rows: list[dict[str, Any]] = []
    for *values, scheduler in grid:
        cell = {**dict(zip(FIELDS, values, strict=True)), "scheduler": scheduler}
        if world.task and cell["task"] != world.task:
            continue
        for at, candidate in enumerate(CANDIDATES[scheduler]):
            noise = rng.normal(0.0, world.std(cell), world.n)
            for seed in range(world.n):
                rows.append({**cell, **candidate, "seed": seed, "top1": world.truth(cell, at) + noise[seed]})
    trials = pd.DataFrame(rows)
    top1 = (trials["top1"] / 100).round(world.digits)
    saturated = np.where(trials["task"] == "cifar10", 0.9965 + 0.0005 * rng.standard_normal(len(trials)), top1)
    stuck = (trials["scheduler"] == "polyak") & (rng.random(len(trials)) < world.stalled)
    outcomes = pd.Series("finished", index=trials.index)
    for at, outcome in world.outcomes.items():
        outcomes[at] = outcome
    lost = outcomes != "finished"
    runs = trials.drop(columns="top1").assign(
        trial_id=[f"{at:016x}" for at in range(len(trials))], sweep="world", outcome=outcomes, best_epoch=100,
        stalled=stuck, cap_share=0.1, zero_share=np.where(stuck, 0.95, 0.01),
        **{f"{which}/test/top{k}": values for which in ("best", "last") for k, values in ((1, top1), (5, saturated))},
        epoch=100, numerics=1,
    )  # fmt: skip
    measured = [name for name in runs if name.startswith(("best/", "last/"))]
    runs[measured] = runs[measured].mask(lost)
    protocol = SelectionRule("world", "test/top1", "maximize", (*FIELDS, "scheduler"), ("lr", "lr_min"))
    table = pa.table({name: to_arrow([None if pd.isna(v) else v for v in runs[name].tolist()]) for name in runs})
    history = table.select(["trial_id", "epoch"]).append_column("step", table["epoch"])
    for name in ("test/top1", "test/top5"):
        history = history.append_column(name, table[f"best/{name}"])

    def load(names: Any) -> pa.Table:
        return history.select([name for name in names or history.column_names if name in history.column_names])

    return RunSet(protocol, frame(table), load)


CLAIMS: Final = (BEST, FALLS_OFF, DROPS_LESS, STEP_SIZE, SAFEGUARD)
PUBLISHED: Final = load_published("cifar")


@dataclass(frozen=True)
class Rates:
    """Over `draws` of a world: by claim and verdict how many rows have it, and in how many draws any row has it."""

    draws: int
    rows: Mapping[tuple[str, str], int]
    draws_with: Mapping[tuple[str, str], int]


def rates(world: World, draws: int, seed: int = 0) -> Rates:
    """What the product says of so many draws of a world, by its own comparison."""
    rng = np.random.default_rng(seed)
    rows: Counter[tuple[str, str]] = Counter()
    draws_with: Counter[tuple[str, str]] = Counter()
    for _ in range(draws):
        said = [(one.claim, one.verdict) for one in compare(drawn(world, rng), PUBLISHED).claims]
        rows.update(said)
        draws_with.update(set(said))
    return Rates(draws, rows, draws_with)


def same(_cell: Mapping[str, Any]) -> float:
    """One std for all cells."""
    return 0.2


WORLDS: Final = {
    "no difference, printed stds": World(no_difference),
    "no difference, one std": World(no_difference, same),
    "no difference, rounded to 0.1 %": World(no_difference, same, digits=3),
    "no difference, n = 5": World(no_difference, n=5),
    "the paper is true": World(paper),
    "the paper is true, n = 5": World(paper, n=5),
    "the opposite": World(opposite),
    "the paper is true, 3 of 10 Polyak trials stall": World(paper, stalled=0.3),
}

if __name__ == "__main__":
    count = int(sys.argv[1])
    print(f"| world ({count} draws each) | seconds | " + " | ".join(CLAIMS) + " |")
    print("|---|---|" + "---|" * len(CLAIMS))
    for name, one in WORLDS.items():
        started = time.perf_counter()
        found = rates(one, count)
        texts = []
        for claim in CLAIMS:
            tested = sum(n for (named, verdict), n in found.rows.items() if named == claim and verdict != "no runs")
            shares = [f"{found.rows[claim, v] / max(tested, 1):.1%} {v}" for v in (HOLDS, FAILS)]
            ever = [f"{found.draws_with[claim, v] / count:.1%}" for v in (HOLDS, FAILS)]
            texts.append(f"{', '.join(shares)}; in any row: {' and '.join(ever)}")
        print(f"| {name} | {time.perf_counter() - started:.0f} | " + " | ".join(texts) + " |", flush=True)
# The same through Stores and the commands.

SMALL: dict[str, Any] = {
    "parameters": ONE_TABLE,
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"values": [0.1, 0.01, 0.001]}},
        {"scheduler": {"value": "cosine"}, "lr": {"value": 0.1}, "lr_min": {"values": [0.001, 0.01]}},
        {"scheduler": {"value": "polyak"}},
    ],
    "tuned": ["lr", "lr_min"],
}
