"""How often replication errs, what it shows and how many seeds it takes, in worlds of known truth.

    python benchmarks/replication.py [--worlds 400]

Prints three tables in Markdown. The first compares rules for two cells: looks at n = 3, 5, 10, 20 with the bounds of
polysweep, the rule "add seeds until p < 0.05", four looks at 0.05, and a fixed n. The second runs polysweep's own
decisions (choice among candidates, reporting seeds, looks, Bonferroni) on made-up results of the quickstart's question.
The third says by how much the mean of a chosen candidate is too good on the seeds that chose it, and on others.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from scipy import stats

from polysweep.sweeps.planning.sequential import FEWER, bounds
from tests.support.replicated_worlds import LOOKS, REPLICATE, error_rates, mean_seeds, rates, world_spec

STD: Final = 0.01  # over seeds, of a made-up accuracy
MARGIN: Final = 2.0  # of equivalence, in stds


def main() -> None:
    parser = argparse.ArgumentParser(description="Error rates and power of replication.")
    parser.add_argument("--worlds", type=int, default=400, help="of the second table; the first has 200,000")
    worlds = parser.parse_args().worlds
    print(two_cells(200_000), end="\n\n")
    print(product(worlds), end="\n\n")
    print(selection(200_000))


def two_cells(worlds: int) -> str:
    """Rules for two cells at the level 0.05, by the ratio of their stds and the true difference."""
    ours = bounds(0.05, LOOKS)
    header = "| rule | errs, stds 1:1 | 1:2 | 1:5 | 1:30 | shows D = 1 std | D = 2 std | mean n at D = 2 |"
    rows = [header, "|---" * 8 + "|"]
    rules = {
        f"looks at {', '.join(map(str, LOOKS))}, polysweep's bounds": (LOOKS, ours),
        "the same looks, each at 0.05": (LOOKS, [0.05] * len(LOOKS)),
        "a look after every seed from 3 to 20, each at 0.05": (tuple(range(3, 21)), [0.05] * 18),
        "fixed n = 3": ((3,), [0.05]),
        "fixed n = 20": ((20,), [0.05]),
    }
    for name, (looks, levels) in rules.items():
        fewer = FEWER if levels is ours else 0  # the others are Welch's test
        errors = [error_rates(levels, looks, ratio, worlds, fewer=fewer) for ratio in (1.0, 2.0, 5.0, 30.0)]
        power = [error_rates(levels, looks, 1.0, worlds // 4, gap, fewer) for gap in (1.0, 2.0)]
        seeds = mean_seeds(levels, looks, worlds // 4, 2.0, fewer)
        texts = [f"{value:.1%}" for value in (*errors, *power)]
        rows.append(f"| {name} | {' | '.join(texts)} | {seeds:.1f} |")
    return "\n".join(rows)


def product(worlds: int) -> str:
    """Polysweep's decisions on four radii: constant with three candidates against Polyak."""
    rows = [
        f"| truth ({worlds} worlds of 4 comparisons) | any false better or worse | better | worse | equivalent | open "
        "| mean seeds per cell | fixed n = 20 at 0.05/4 shows |",
        "|---" * 8 + "|",
    ]
    spec = world_spec(replicate={**REPLICATE, "margin": f"{100 * MARGIN * STD:g} points"})
    for name, gap, ratio in (
        ("no difference", 0.0, 1.0),
        ("no difference, Polyak's std five times as large", 0.0, 5.0),
        ("Polyak is better by 1 std", 1.0, 1.0),
        ("by 2 std, the margin", 2.0, 1.0),
        ("by 3 std", 3.0, 1.0),
        ("by 5 std", 5.0, 1.0),
    ):

        def truth(values: Mapping[str, Any], gap: float = gap, ratio: float = ratio) -> tuple[float, float]:
            is_polyak = values["scheduler"] == "polyak"
            return 0.9 + gap * STD * is_polyak, STD * (ratio if is_polyak else 1.0)

        outcome = rates(spec, truth, worlds)
        false = outcome.any_better_or_worse if not gap else 0.0
        fixed = error_rates([0.05 / 4], [20], 1.0, 40_000, gap, 0) if ratio == 1.0 else float("nan")
        texts = [f"{value:.1%}" for value in (outcome.better, outcome.worse, outcome.equivalent, outcome.open)]
        shown = "-" if np.isnan(fixed) else f"{fixed:.1%}"
        rows.append(
            f"| {name} | {'-' if gap else f'{false:.1%}'} | {' | '.join(texts)} | {outcome.seeds:.1f} | {shown} |"
        )
    return "\n".join(rows)


def selection(worlds: int) -> str:
    """By how much the mean of the best of k equal candidates is too good, in stds of a seed, at n = 3."""
    rng = np.random.default_rng(0)
    header = "| candidates | on the 3 seeds that chose | on 3 others | Welch against one candidate errs | on 3 others |"
    rows = [header, "|---" * 5 + "|"]
    for count in (1, 3, 9):
        tuning = rng.standard_normal((worlds // 4, count, 3))
        best = tuning.mean(axis=2).argmax(axis=1)
        chosen = np.take_along_axis(tuning, best[:, None, None], axis=1)[:, 0]
        others, rival = rng.standard_normal((2, worlds // 4, 3))
        tests = [stats.ttest_ind(one, rival, axis=1, equal_var=False) for one in (chosen, others)]
        errors = [f"{(test.pvalue < 0.05).mean():.1%}" for test in tests]
        rows.append(f"| {count} | {chosen.mean():+.2f} | {others.mean():+.2f} | {errors[0]} | {errors[1]} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
