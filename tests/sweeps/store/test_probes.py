"""Measurements in a Store: kept by their settings, and named if they are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.store.files import NewerFormatError, StoreError
from polysweep.sweeps.store.probes import ProbeFiles
from polysweep.sweeps.store.store import Store
from polysweep.trainer.probe.settings import CorruptionSettings, CurvatureSettings

PROBE = {"epoch": 3, "trained": 3, "columns": {"curvature/trace": 1.5, "curvature/loss": None}, "seconds": 0.5}
KEY = CurvatureSettings().key


def probes(root: str) -> ProbeFiles:
    return ProbeFiles(Store(root).files)


def test_a_measurement_is_read_by_its_trial_and_settings_alone(root: str) -> None:
    files = probes(root)
    files.write("a1", KEY, {**PROBE, "provenance": {}})
    assert files.read(["a1", "b2"], KEY) == ({"a1": {**PROBE, "provenance": {}, "format": 1}}, [])
    assert files.read(["a1"], CurvatureSettings(images=9).key) == ({}, [])


def test_the_settings_of_the_last_probe_of_each_kind_are_kept(root: str) -> None:
    files = probes(root)
    assert files.settings("sweep") == []
    corruptions = CorruptionSettings.of(["blur", "noise-2"], None)
    for settings in (CurvatureSettings(radii=(0.5,)), CurvatureSettings(steps=9), corruptions):
        files.keep_settings("sweep", settings)
    assert files.settings("sweep") == [CurvatureSettings(steps=9), corruptions]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "it is empty"),
        ("{", "not JSON"),
        ('{"format": 1, "epoch": -1}', "damaged: epoch"),
        ('{"format": 1, "epoch": 1, "trained": 1, "seconds": 1, "provenance": {}, "columns": {"a": "x"}}',
         "damaged: columns.a"),
    ],
)  # fmt: skip
def test_a_damaged_measurement_is_named_beside_the_others(content: str, words: str, tmp_path: Path) -> None:
    files = probes(str(tmp_path))
    for trial_id in ("a1", "b2"):
        files.write(trial_id, KEY, {**PROBE, "provenance": {}})
    path = tmp_path / "trials" / "a1" / "probes" / f"{KEY}.json"
    path.write_text(content)
    there, (damage,) = files.read(["a1", "b2"], KEY)
    assert list(there) == ["b2"] and words in damage and str(path) in damage


def test_a_measurement_of_a_newer_version_is_not_taken_for_damage(tmp_path: Path) -> None:
    files = probes(str(tmp_path))
    files.write("a1", KEY, {**PROBE, "format": 2})
    with pytest.raises(NewerFormatError, match="has format 2"):
        files.read(["a1"], KEY)


def test_damaged_settings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "sweeps" / "sweep" / "probes" / "curvature.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 1, "settings": {"images": -1}}')
    with pytest.raises(StoreError, match=r"curvature\.json: damaged: settings\.images: "):
        probes(str(tmp_path)).settings("sweep")
