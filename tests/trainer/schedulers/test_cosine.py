"""Step sizes that follow from the epoch alone: constant, and cosine annealing."""

from __future__ import annotations

import math

import pytest

from polysweep.trainer.schedulers.cosine import cosine
from polysweep.trainer.train import train
from tests.support.training import configs


def test_gamma_follows_the_scheduler() -> None:
    constant, cosine = configs({"scheduler": "constant", "lr": 0.05}, {"scheduler": "cosine", "lr": 0.1})
    epochs = list(train([constant, cosine]))
    for t, reports in enumerate(epochs):
        expected = [0.05, 0.1 * (1 + math.cos(math.pi * t / 4)) / 2]
        for report, gamma in zip(reports, expected, strict=True):
            for name in ("gamma/mean", "gamma/min", "gamma/max"):
                assert report.history[name] == pytest.approx(gamma, rel=1e-6)
            assert report.history["gamma/cap_share"] == report.history["gamma/zero_share"] == 0


def test_cosine_equals_the_papers_recursion() -> None:
    gamma, low, epochs = 0.1, 0.001, 100
    for t in range(epochs):
        assert abs(cosine(0.1, low, t, epochs) - gamma) < 1e-15
        gamma = low + (gamma - low) * (1 + math.cos((t + 1) * math.pi / epochs)) / (1 + math.cos(t * math.pi / epochs))
    assert cosine(0.1, low, epochs, epochs) == low
