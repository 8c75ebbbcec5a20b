"""A sweep of CIFAR's cells with results as the paper has them."""

from __future__ import annotations

from collections import Counter

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.published.cells import load_published
from polysweep.analysis.published.comparison import Compared, compare
from polysweep.analysis.tables.statistics import NO_RUNS
from polysweep.trainer.config import TrialConfig
from tests.support.made import ONE_TABLE

CIFAR = {
    "parameters": ONE_TABLE,
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"values": [0.001, 0.1]}},
        {"scheduler": {"value": "cosine"}, "lr": {"value": 0.1}, "lr_min": {"values": [0.001, 0.01]}},
        {"scheduler": {"value": "polyak"}, "gamma_b": {"value": 1.0}},
    ],
    "tuned": ["lr", "lr_min"],
}
NOISE = (-0.001, 0.0005, 0.0012)
SPREAD = {"constant": 1.0, "cosine": 1.3, "polyak": 0.8}


def as_published(config: TrialConfig) -> list[float] | str:
    """Polyak ahead and steady, cosine falling: what the paper says."""
    rho = config.rho or 0
    base = {"constant": 0.89 - 0.02 * rho, "cosine": 0.90 - 0.1 * rho, "polyak": 0.91 - 0.01 * rho}[config.scheduler]
    worse = 0.05 if config.lr == 0.001 or config.lr_min == 0.01 else 0
    return [base - worse + NOISE[config.seed] * SPREAD[config.scheduler] * (1 + 0.1 * rho)]


def compared(pulled: RunSet) -> Compared:
    return compare(pulled, load_published("cifar"))


def verdicts(found: Compared, claim: str, reading: str = "top-1", dataset: str = "cifar10") -> Counter[str]:
    return Counter(
        one.verdict
        for one in found.claims
        if claim in one.claim and one.reading == reading and one.dataset == dataset and one.verdict != NO_RUNS
    )
