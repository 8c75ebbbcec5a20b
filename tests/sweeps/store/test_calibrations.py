"""A measurement is made once, whoever asks for it, and is checked when it is read."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from polysweep.sweeps.job import Calibration
from polysweep.sweeps.store import calibrations
from polysweep.sweeps.store.files import NewerFormatError, StoreError
from polysweep.sweeps.store.process import Process
from polysweep.sweeps.store.store import Store

DEVICE = "Some (R) GPU/80 GB"
MEASURED = Calibration(DEVICE, "0a1b2c3d", 4, None, [{"width": 4, "seconds": 0.01, "memory": 1}], {}, 10, 1.5, 1.0)
FOLDER = "calibration/Some-R-GPU-80-GB"


def nobody() -> Calibration | None:
    raise AssertionError("it has been measured already")


def test_a_measurement_is_made_once_and_kept_by_device_and_signature(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert store.calibrations.read(DEVICE, "0a1b2c3d") is None
    assert store.calibrations.measured(DEVICE, "0a1b2c3d", lambda: MEASURED) == MEASURED
    assert Store(str(tmp_path)).calibrations.measured(DEVICE, "0a1b2c3d", nobody) == MEASURED
    assert store.files.names(FOLDER) == ["0a1b2c3d.json"]
    assert store.calibrations.read("another", "0a1b2c3d") is None


def test_of_two_at_once_one_measures_and_the_other_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrations, "WAIT_SECONDS", 0.01)
    begun, may_end, answers = threading.Event(), threading.Event(), []

    def measure() -> Calibration:
        begun.set()
        assert may_end.wait(30)
        return MEASURED

    def ask(measure_it: object) -> None:
        answers.append(Store(str(tmp_path)).calibrations.measured(DEVICE, "0a1b2c3d", measure_it))  # type: ignore[arg-type]

    first = threading.Thread(target=ask, args=(measure,))
    first.start()
    assert begun.wait(30)
    second = threading.Thread(target=ask, args=(nobody,))
    second.start()
    may_end.set()
    for thread in (first, second):
        thread.join(30)
    assert answers == [MEASURED, MEASURED]


def test_what_a_dead_process_has_begun_is_begun_again(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    dead = replace(Process.this(), pid=2**22 + 1)
    store.files.create(f"{FOLDER}/0a1b2c3d.measuring", json.dumps({"process": vars(dead)}).encode())
    assert store.calibrations.measured(DEVICE, "0a1b2c3d", lambda: MEASURED) == MEASURED
    assert store.files.names(FOLDER) == ["0a1b2c3d.json"]


def test_nobody_waits_for_another_machine_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrations, "PATIENCE_SECONDS", 0.0)
    store = Store(str(tmp_path))
    elsewhere = replace(Process.this(), boot="another")
    store.files.create(f"{FOLDER}/0a1b2c3d.measuring", json.dumps({"process": vars(elsewhere)}).encode())
    assert store.calibrations.measured(DEVICE, "0a1b2c3d", lambda: MEASURED) == MEASURED


def test_an_interrupted_measurement_is_not_kept(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert store.calibrations.measured(DEVICE, "0a1b2c3d", lambda: None) is None
    assert store.files.names(FOLDER) == []


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"{", StoreError, "not JSON"),
        (b'{"format": 1, "device": "x"}', StoreError, "damaged: signature"),
        (b'{"format": 99}', NewerFormatError, "install a newer one"),
    ],
)
def test_a_damaged_measurement_is_named(tmp_path: Path, content: bytes, error: type[Exception], said: str) -> None:
    store = Store(str(tmp_path))
    store.files.write(f"{FOLDER}/0a1b2c3d.json", content)
    with pytest.raises(error, match=said) as raised:
        store.calibrations.read(DEVICE, "0a1b2c3d")
    assert f"{FOLDER}/0a1b2c3d.json" in str(raised.value)
