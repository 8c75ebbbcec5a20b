"""Distributions, grids and hyperband beside W&B's published engine, which has an environment of its own."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
from scipy import stats

from polysweep.sweeps.spec.hyperband import Hyperband, survives
from polysweep.sweeps.spec.parameter import Distribution, Parameter
from polysweep.sweeps.spec.search import draw
from tests.support.project import ROOT

ENGINE = Path(sys.executable).parent.parent / "wandb-sweeps/bin/python"
DRAWS = 2000
AT = [0.0005 + k / 1000 for k in range(1000)]
"""Where quantiles are compared: between the jumps of every distribution below."""

ENTRIES: dict[str, dict[str, Any]] = {
    "constant": {"distribution": "constant", "value": 3},
    "constant by its value": {"value": "sam"},
    "categorical": {"distribution": "categorical", "values": ["a", "b", "c"]},
    "categorical by its values, one twice": {"values": [1, 1, 2]},
    "categorical_w_probabilities": {
        "distribution": "categorical_w_probabilities", "values": [1, 2, 4], "probabilities": [0.6, 0.3, 0.1],
    },
    "probabilities alone, within W&B's tolerance": {
        "values": [1, 2, 4], "probabilities": [0.33333, 0.33333, 0.33333],
    },
    "int_uniform": {"distribution": "int_uniform", "min": -2, "max": 7},
    "int_uniform by its ends": {"min": 1, "max": 5},
    "uniform": {"distribution": "uniform", "min": 1, "max": 5},
    "uniform by its ends": {"min": 0.1, "max": 1},
    "q_uniform": {"distribution": "q_uniform", "min": 1, "max": 6},
    "q_uniform beyond its ends": {"distribution": "q_uniform", "min": 0.1, "max": 0.9, "q": 0.25},
    "q_uniform of a fraction": {"distribution": "q_uniform", "min": 0.0, "max": 0.7, "q": 0.1},
    "q_uniform of less than one multiple": {"distribution": "q_uniform", "min": 0.1, "max": 0.2, "q": 1},
    "log_uniform": {"distribution": "log_uniform", "min": -9.2, "max": -2.3},
    "log_uniform of what looks like values": {"distribution": "log_uniform", "min": 1e-5, "max": 0.1},
    "log_uniform_values": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1},
    "inv_log_uniform": {"distribution": "inv_log_uniform", "min": 1.0, "max": 6.0},
    "inv_log_uniform_values": {"distribution": "inv_log_uniform_values", "min": 1e-3, "max": 10.0},
    "q_log_uniform": {"distribution": "q_log_uniform", "min": 0.0, "max": 3.0},
    "q_log_uniform_values": {"distribution": "q_log_uniform_values", "min": 0.3, "max": 40, "q": 4},
    "normal": {"distribution": "normal"},
    "normal of its own": {"distribution": "normal", "mu": -2, "sigma": 0.5},
    "q_normal": {"distribution": "q_normal"},
    "q_normal of its own": {"distribution": "q_normal", "mu": 3.0, "sigma": 2.0, "q": 0.5},
    "log_normal": {"distribution": "log_normal"},
    "log_normal of its own": {"distribution": "log_normal", "mu": -1, "sigma": 0.5},
    "q_log_normal": {"distribution": "q_log_normal"},
    "q_log_normal of its own": {"distribution": "q_log_normal", "mu": 2.0, "sigma": 0.4, "q": 2},
    "beta": {"distribution": "beta"},
    "beta of its own": {"distribution": "beta", "a": 2, "b": 5.5},
    "q_beta": {"distribution": "q_beta"},
    "q_beta of its own": {"distribution": "q_beta", "a": 0.5, "b": 2, "q": 0.2},
}  # fmt: skip

DRAWN = list({entry.get("distribution"): name for name, entry in reversed(ENTRIES.items())}.values())
"""One entry of each distribution, and one that leaves it out."""

GRIDS: dict[str, dict[str, Any]] = {
    "values": {"values": [3, 1, 2]},
    "values, one twice": {"values": [1, 1, 2]},
    "int_uniform": {"min": -1, "max": 3},
    "q_uniform": {"distribution": "q_uniform", "min": 1, "max": 5},
    "q_uniform from below its first multiple": {"distribution": "q_uniform", "min": 0.1, "max": 0.9, "q": 0.25},
    "q_uniform of whole numbers": {"distribution": "q_uniform", "min": 3, "max": 12, "q": 4},
    "q_uniform whose last value is max by rounding": {"distribution": "q_uniform", "min": 1.0, "max": 1.3, "q": 0.1},
}


def _cases() -> list[dict[str, Any]]:
    """Hyperband of every kind: the first curve has just come to a rung, the others are anywhere, and some are equal."""
    rng = random.Random(15)
    settings: list[dict[str, Any]] = [
        {"min_iter": 2}, {"min_iter": 2, "eta": 2}, {"min_iter": 1, "eta": 1.5}, {"min_iter": 2, "s": 2},
        {"max_iter": 27, "s": 2}, {"max_iter": 27, "s": 9, "eta": 2.5}, {"min_iter": 2, "max_iter": 20, "s": 2},
        {"min_iter": 2, "eta": 2, "strict": False}, {"min_iter": 3, "strict": True}, {"min_iter": 1, "eta": 4},
    ]  # fmt: skip
    cases = []
    for setting in settings:
        early = {"type": "hyperband", **setting}
        rungs = Hyperband.model_validate(early).rungs(30)
        for points in range(1, 13):
            lengths = [rng.choice(rungs), *(rng.randrange(1, 30) for _ in range(points - 1))]
            curves = [[rng.randrange(8) / 8 for _ in range(length)] for length in lengths]
            cases += [{"early_terminate": early, "goal": g, "curves": curves} for g in ("minimize", "maximize")]
    return cases


@pytest.fixture(scope="module")
def engine() -> dict[str, Any]:
    """Everything that the tests ask of W&B's engine, in one process."""
    assert ENGINE.exists(), "run `make test`: it installs W&B's engine into an environment of its own"
    asked = {
        "seed": 3, "count": DRAWS, "draws": DRAWN, "at": AT, "entries": ENTRIES, "grids": GRIDS, "hyperband": _cases(),
    }  # fmt: skip
    script = ROOT / "tests/support/wandb_engine.py"
    done = subprocess.run(
        [ENGINE, "-I", script], input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_distributions_and_grids_are_those_of_wandbs_engine(engine: dict[str, Any]) -> None:
    """Each value at 1,000 quantiles, two seeded samples of 2,000 draws, and all values of a grid."""
    assert {ENTRIES[name].get("distribution") for name in DRAWN} - {None} == set(get_args(Distribution))
    assert [name for name in ENTRIES if not _has_quantiles(ENTRIES[name], engine["quantiles"][name])] == []
    assert [name for name in DRAWN if not _is_drawn_like(ENTRIES[name], engine["draws"][name])] == []
    assert [name for name in GRIDS if not _is_grid(GRIDS[name], engine["grids"][name])] == []


def _has_quantiles(entry: dict[str, Any], theirs: list[Any]) -> bool:
    parameter = Parameter.model_validate(entry)
    ours = [parameter.at(u) for u in AT]
    return ours == theirs if isinstance(theirs[0], str) else ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)


def _is_drawn_like(entry: dict[str, Any], theirs: list[Any]) -> bool:
    """By chi-square of the counts, or Kolmogorov and Smirnov's test."""
    parameter = Parameter.model_validate(entry)
    ours = [draw([{"x": parameter}], 3, index).values["x"] for index in range(DRAWS)]
    counts = [Counter(v if isinstance(v, str) else round(v, 9) + 0.0 for v in sample) for sample in (ours, theirs)]
    often = [value for value in counts[0] | counts[1] if counts[0][value] + counts[1][value] >= 20]
    if len(counts[0]) > DRAWS / 2:
        return bool(stats.ks_2samp(ours, theirs).pvalue > 0.01)
    if len(often) > 1:
        return bool(stats.chi2_contingency([[count[value] for value in often] for count in counts]).pvalue > 0.01)
    return counts[0] == counts[1]


def _is_grid(entry: dict[str, Any], theirs: list[Any]) -> bool:
    """A value that is listed twice is one run of W&B's, and one trial."""
    return list(dict.fromkeys(Parameter.model_validate(entry).grid or ())) == pytest.approx(theirs, rel=1e-12)


def test_hyperband_stops_whom_wandbs_engine_stops(engine: dict[str, Any]) -> None:
    ours = []
    for case in _cases():
        early = Hyperband.model_validate(case["early_terminate"])
        own, *others = case["curves"]
        strict = early.strict is not False
        ours.append(not survives(own, others, len(own), early.eta, case["goal"], strict=strict))
    assert ours == engine["stopped"]
    assert 0.2 < sum(ours) / len(ours) < 0.8, "both happen"
