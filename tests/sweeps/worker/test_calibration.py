"""A worker measures a signature once for its kind of device."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.job import CalibrationJob
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.calibration import calibrate
from polysweep.trainer import calibration as measuring
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.device import kind_of_device
from tests.support.project import TINY


def test_a_signature_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrialConfig.parse(TINY)
    job = CalibrationJob(str(tmp_path), "0a1b2c3d", config.canonical(), width=None, is_shared=False)
    measured = calibrate(job)
    assert measured is not None
    assert measured.device == kind_of_device("cpu", 1) and measured.device.endswith(", 1 thread")
    assert measured.width in [one["width"] for one in measured.widths] and measured.share is None
    monkeypatch.setattr(measuring, "measure_widths", None)
    again = calibrate(job)
    assert again is not None and again.width == measured.width
    assert Store(str(tmp_path)).files.names("calibration") != []


def test_the_share_of_a_device_is_measured_at_its_best_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU `gpus: auto` asks for it; the processes side by side are tested where they are measured."""
    asked = []

    def shares(_config: TrialConfig, curve: measuring.Curve, **_: object) -> dict[int, float]:
        asked.append(curve.best(1.0))
        return {1: 10.0, 2: 18.0, 4: 18.1}

    monkeypatch.setattr(measuring, "measure_shares", shares)
    job = CalibrationJob(str(tmp_path), "0a1b2c3d", TrialConfig.parse(TINY).canonical(), width=None, is_shared=True)
    measured = calibrate(job)
    assert measured is not None and (measured.share, asked) == (0.5, [measured.width])
    assert measured.signature == "0a1b2c3d-shared"
