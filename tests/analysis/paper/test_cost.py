"""What sweeps cost by class of device."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.analysis.paper.cost import PEAKS, REACHED, hours_by_class
from polysweep.analysis.paper.parts import CIFAR, THEORY
from polysweep.sweeps.job import Calibration
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.flops import training_flops


def test_the_arithmetic_of_a_linear_model_is_exact() -> None:
    """64 x 10 multiply-adds an image, thrice for forward and backward, twice for the two passes of USAM."""
    values = {"task": "digits", "model": "linear", "scheduler": "constant", "lr": 0.1, "epochs": 7}
    usam = TrialConfig.parse({**values, "optimizer": "usam", "rho": 0.1})
    assert training_flops(usam) == 7 * 1437 * 2 * 3 * (2 * 64 * 10)
    assert training_flops(TrialConfig.parse({**values, "optimizer": "sgd"})) == training_flops(usam) / 2


def test_the_papers_tables_take_a_time_that_a_measurement_replaces(tmp_path: Path) -> None:
    store, trials = Store(str(tmp_path)), CIFAR.spec(is_rehearsal=False).trials
    rows = hours_by_class(trials, store)
    assert [name for name, *_ in rows] == list(PEAKS)
    # ResNet-20 and -32 take 41 and 69 million multiply-adds an image (He et al. 2016), here half of the trials each.
    expected = 1152 * 100 * 50_000 * 2 * 3 * 2 * 55e6 / (REACHED * PEAKS["NVIDIA A100"] * 1e12) / 3600
    assert {name: hours for name, hours, _ in rows}["NVIDIA A100"] == pytest.approx(expected, rel=0.05)

    for signature in {trial.signature for trial in trials}:
        measured = Calibration(
            "Some GPU", signature, 8, None, [{"width": 8, "seconds": 0.004, "memory": 1}], {}, 1, 1, 0
        )
        store.calibrations._keep(measured)
    device, hours, source = hours_by_class(trials, store)[0]
    assert (device, source) == ("Some GPU", "measured in this Store")
    assert hours == pytest.approx(1152 * 100 * 391 * 0.004 / 3600)


def test_convex_problems_cost_nothing_worth_saying(tmp_path: Path) -> None:
    assert hours_by_class(THEORY[0].spec(is_rehearsal=False).trials, Store(str(tmp_path))) == []
